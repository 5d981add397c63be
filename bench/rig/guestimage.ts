/**
 * The guest image of the benchmark: the image of the interop tests with an archive appended, which the kernel unpacks
 * as well. The archive holds the programs of this host with their loader and libraries, so versions cannot conflict.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { PROGRAMS, ROOT } from './paths.js';

/** The folder of the archive's contents in the guest. */
export const GUEST_FOLDER = '/bench';

/** The library that the xdp link loads by name. Without it that link is skipped. */
const LIBRARY = 'libbpf.so.1';

/** @param initrd the image of the interop tests @returns the path of the image with the archive appended */
export function pack(initrd: string): string {
  const place = `${PROGRAMS}/guest`;
  const root = join(place, 'root');
  rmSync(place, { recursive: true, force: true });
  mkdirSync(join(root, GUEST_FOLDER, 'lib'), { recursive: true });
  mkdirSync(join(root, GUEST_FOLDER, 'build/bench'), { recursive: true });
  addProject(join(root, GUEST_FOLDER));
  for (const program of programs()) addProgram(join(root, GUEST_FOLDER), program);
  addLibrary(join(root, GUEST_FOLDER));
  const all = join(place, 'initrd');
  execFileSync('sh', ['-ec', `{ cat "$1"; find . | cpio --quiet -o -H newc -R 0:0; } > "$2"`, 'sh', initrd, all], {
    cwd: root,
  });
  rmSync(root, { recursive: true });
  return all;
}

/** Returns the programs: their path in the guest, and their path here. */
function programs(): [name: string, file: string][] {
  const found = (name: string) => {
    try {
      return execFileSync('sh', ['-c', 'command -v "$1"', 'sh', name], { encoding: 'utf8' }).trim();
    } catch {
      return '';
    }
  };
  const all: [string, string][] = [
    ['bin/node', process.execPath],
    ['bin/iperf3', found('iperf3')],
  ];
  return all.filter(([, file]) => existsSync(file));
}

function addProject(to: string): void {
  for (const path of [
    'package.json',
    'dist',
    'build/card.js',
    'build/card.wasm',
    `prebuilds/linux-${process.arch}/wasm_roce.node`,
    `prebuilds/linux-${process.arch}/libwasmroce.so`,
    'build/native/roce_xdp.bpf.o',
    'build/bench/js',
  ])
    if (existsSync(join(ROOT, path))) cpSync(join(ROOT, path), join(to, path), { recursive: true });
}

/** Copies a program and its libraries, and writes a script that starts the program with these libraries. */
function addProgram(to: string, [name, file]: readonly [string, string]): void {
  const own = join(to, 'lib', `program-${basename(name)}`);
  copyFileSync(realpathSync(file), own);
  chmodSync(own, 0o755);
  const libraries = addLibrariesOf(to, file);
  const loader = libraries.find((library) => basename(library).startsWith('ld-')) ?? '';
  const lib = `${GUEST_FOLDER}/lib`;
  const script = join(to, name);
  mkdirSync(join(script, '..'), { recursive: true });
  writeFileSync(
    script,
    `#!/bin/sh\nexec ${lib}/${basename(loader)} --library-path ${lib} ${lib}/${basename(own)} "$@"\n`,
  );
  chmodSync(script, 0o755);
}

/** @returns the paths of the libraries that the file is linked with */
function addLibrariesOf(to: string, file: string): string[] {
  const lines = execFileSync('ldd', [file], { encoding: 'utf8' }).split('\n');
  const libraries = lines.flatMap((line) => /(\/\S+) \(0x/.exec(line)?.[1] ?? []);
  for (const library of libraries) copyFileSync(realpathSync(library), join(to, 'lib', basename(library)));
  return libraries;
}

function addLibrary(to: string): void {
  const known = execFileSync('ldconfig', ['-p'], { encoding: 'utf8' });
  const [, file] = new RegExp(`^\\s*${LIBRARY} .* => (/\\S+)$`, 'm').exec(known) ?? [];
  if (file === undefined) return;
  copyFileSync(realpathSync(file), join(to, 'lib', LIBRARY));
  addLibrariesOf(to, file);
}
