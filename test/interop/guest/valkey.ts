/**
 * Builds Valkey with RDMA from the source package of Debian, whose own packages have none, into the cache of images:
 *
 *   tsx test/interop/guest/valkey.ts       builds if there is no Valkey yet, prints its folder
 *
 * The programs use the libraries of this machine and of the guests; their debugging symbols are left out.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { cacheFolder } from '../../../scripts/setup/cache.mjs';
import { sources } from './archive.js';

/** The suite whose source has RDMA in the client programs too: Valkey 9. */
const SUITE = 'sid';
const PROGRAMS = ['valkey-server', 'valkey-cli', 'valkey-benchmark'] as const;

/** Returns the folder of the programs, of the newest version that was built. */
export function findValkey(): string | undefined {
  if (!existsSync(cacheFolder())) return undefined;
  const built = readdirSync(cacheFolder()).filter((name) => /^valkey-[0-9]+(\.[0-9]+)*$/.test(name));
  const newest = built.sort((a, b) => a.localeCompare(b, 'en', { numeric: true })).at(-1);
  return newest && join(cacheFolder(), newest);
}

/** @returns the folder of the programs @throws Error when the source cannot be had, or does not compile */
export function buildValkey(log: (line: string) => void = () => {}): string {
  const found = findValkey();
  if (found !== undefined) return found;
  const folder = join(cacheFolder(), `valkey-unfinished-${process.pid}`);
  const lists = join(folder, 'lists');
  const run = (program: string, ...args: string[]) =>
    execFileSync(program, args, { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'], maxBuffer: 1 << 26 });
  try {
    mkdirSync(join(lists, 'partial'), { recursive: true });
    writeFileSync(join(folder, 'sources.list'), `${sources(SUITE, 'deb-src').join('\n')}\n`);
    const where = {
      'Dir::State::Lists': lists,
      'Dir::Cache': folder,
      'Dir::Etc::SourceList': join(folder, 'sources.list'),
      'Dir::Etc::SourceParts': '-',
      // the folder belongs to root, and so do the files in it
      'APT::Sandbox::User': 'root',
    };
    const options = Object.entries(where).flatMap(([name, value]) => ['-o', `${name}=${value}`]);
    run('apt-get', ...options, '-qq', 'update');
    run('apt-get', ...options, '-qq', 'source', '--download-only', 'valkey');
    const archive = readdirSync(folder).find((name) => name.includes('.orig.tar.')) ?? '';
    const version = /^valkey_([0-9.]+[0-9])/.exec(archive)?.[1];
    if (version === undefined) throw new Error(`valkey: the version of ${archive || 'no archive'} is not known`);
    log(`compiling Valkey ${version} with RDMA`);
    mkdirSync(join(folder, 'source'));
    run('tar', '-xf', archive, '-C', 'source', '--strip-components=1');
    const settings = ['BUILD_RDMA=yes', 'MALLOC=libc', 'USE_SYSTEMD=no', 'OPTIMIZATION=-O2'];
    run('make', `-j${cpus().length}`, '-C', 'source/src', ...PROGRAMS, ...settings);
    mkdirSync(join(folder, 'programs'));
    for (const name of PROGRAMS) run('strip', '-o', `programs/${name}`, `source/src/${name}`);
    const place = join(cacheFolder(), `valkey-${version}`);
    if (!existsSync(place)) renameSync(join(folder, 'programs'), place);
    return place;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href)
  console.log(buildValkey((line) => console.error(line)));
