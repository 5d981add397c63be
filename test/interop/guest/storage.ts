/**
 * Additions of the tests of NVMe to a guest: Linux's host and target of NVMe over RDMA, nvme-cli, fio and ext4. They
 * are in an archive beside the guest's image (image.ts), because a guest that boots with them needs more time and
 * memory.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Guest } from './guest.js';
import type { KernelModules } from './modules.js';
import { findGuestImage, type StorageRecipe } from './recipe.js';

const ARCHIVE = 'storage.tar';
const MODULE_LIST = 'modules-storage';
const LIBRARIES = 'usr/lib/x86_64-linux-gnu';

/**
 * Makes the archive: the recipe's files, the libraries that they need and the guest has not, and the modules.
 * @param unpacked the recipe's packages with all that they depend on
 * @param root of the guest @param loaded paths of modules that are loaded when it boots
 */
export function packStorage(
  folder: string,
  { files, modules: wanted }: StorageRecipe,
  { unpacked, root, modules, loaded }: { unpacked: string; root: string; modules: KernelModules; loaded: string[] },
): void {
  const packed = join(folder, 'storage');
  const copy = (path: string) => {
    mkdirSync(dirname(join(packed, path)), { recursive: true });
    cpSync(join(unpacked, path), join(packed, path), { dereference: true });
  };
  for (const path of files) copy(path);
  const open = [...files];
  for (let path = open.pop(); path !== undefined; path = open.pop())
    for (const name of neededBy(join(packed, path))) {
      const places = ['', 'ceph'].map((folder) => join(LIBRARIES, folder, name));
      if (places.some((place) => existsSync(join(root, place)) || existsSync(join(packed, place)))) continue;
      const library = places.find((place) => existsSync(join(unpacked, place)));
      if (library === undefined) throw new Error(`guest: ${path} needs ${name}, which none of its packages has`);
      copy(library);
      open.push(library);
    }
  modules.install(wanted, packed, MODULE_LIST, loaded);
  execFileSync('tar', ['-C', packed, '-cf', join(folder, ARCHIVE), ...readdirSync(packed)]);
}

/** The libraries that a program or library names. */
function neededBy(path: string): string[] {
  if (readFileSync(path).toString('latin1', 1, 4) !== 'ELF') return [];
  const printed = execFileSync('readelf', ['-d', path], { encoding: 'utf8' });
  return [...printed.matchAll(/\(NEEDED\).*\[(.*)\]/g)].map(([, name]) => name as string);
}

/** Whether there is an archive for the guest. */
export function hasStorage(): boolean {
  const folder = findGuestImage()?.folder;
  return folder !== undefined && existsSync(join(folder, ARCHIVE));
}

/** Adds the programs to a guest and loads the modules, if it has not got them. */
export async function installStorage(guest: Guest): Promise<void> {
  if ((await guest.exec(['test', '-e', `/etc/${MODULE_LIST}`])).status === 0) return;
  const input = readFileSync(join(findGuestImage()?.folder as string, ARCHIVE));
  await guest.run('tar -x -C /', { input, timeout: 60_000 });
  // null_blk makes its disks when it is told to, not one of its own at first
  const load = 'case $module in */null_blk.ko) insmod $module nr_devices=0 ;; *) insmod $module ;; esac';
  await guest.run(`while read module; do ${load} || exit; done < /etc/${MODULE_LIST}`, { timeout: 60_000 });
}
