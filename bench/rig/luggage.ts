/**
 * What the virtual machine of the interop tests needs to run the same programs as this one: an archive that the kernel
 * unpacks behind its own. Programs bring their loader and libraries, so it does not matter whose are newer.
 */
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { PROGRAMS, ROOT } from './paths.js';

/** Where it lies in the machine. */
export const LUGGAGE = '/bench';

/** What the xdp link loads by name; without it that link is skipped. */
const LIBRARY = 'libbpf.so.1';
/** Packages that only commands of the terminal load. */
const NOT_LOADED = new Set(['commander', 'cli-table3']);

/** @param initrd the machine's own @returns the path of one with everything */
export function pack(initrd: string): string {
  const place = `${PROGRAMS}/guest`;
  const root = join(place, 'root');
  rmSync(place, { recursive: true, force: true });
  mkdirSync(join(root, LUGGAGE, 'lib'), { recursive: true });
  mkdirSync(join(root, LUGGAGE, 'build/bench'), { recursive: true });
  addProject(join(root, LUGGAGE));
  for (const program of programs()) addProgram(join(root, LUGGAGE), program);
  addLibrary(join(root, LUGGAGE));
  const all = join(place, 'initrd');
  execFileSync('sh', ['-ec', `{ cat "$1"; find . | cpio --quiet -o -H newc -R 0:0; } > "$2"`, 'sh', initrd, all], {
    cwd: root,
  });
  rmSync(root, { recursive: true });
  return all;
}

/** Programs as they are called in the machine, and where they are here. */
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
    ...['tcp', 'rawlink'].map((name): [string, string] => [`build/bench/${name}`, `${PROGRAMS}/${name}`]),
  ];
  return all.filter(([, file]) => existsSync(file));
}

function addProject(to: string): void {
  for (const path of [
    'package.json',
    'dist',
    'build/card.js',
    'build/card.wasm',
    'build/native/wasm_roce.node',
    'build/native/roce_xdp.bpf.o',
    'build/bench/js',
  ])
    if (existsSync(join(ROOT, path))) cpSync(join(ROOT, path), join(to, path), { recursive: true });
  const { dependencies = {} } = manifest(ROOT);
  for (const name of Object.keys(dependencies).filter((each) => !NOT_LOADED.has(each))) addPackage(to, name);
}

/** With those of its optional packages that this machine has: they bring what is compiled. */
function addPackage(to: string, name: string): void {
  const from = join(ROOT, 'node_modules', name);
  if (!existsSync(from)) return;
  cpSync(from, join(to, 'node_modules', name), { recursive: true, dereference: true });
  for (const optional of Object.keys(manifest(from).optionalDependencies ?? {})) addPackage(to, optional);
}

function manifest(folder: string): Readonly<Record<'dependencies' | 'optionalDependencies', object | undefined>> {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
}

/** A program, what it is linked with, and a script in its place that starts it with nothing else. */
function addProgram(to: string, [name, file]: readonly [string, string]): void {
  const own = join(to, 'lib', `program-${basename(name)}`);
  copyFileSync(realpathSync(file), own);
  chmodSync(own, 0o755);
  const libraries = addLibrariesOf(to, file);
  const loader = libraries.find((library) => basename(library).startsWith('ld-')) ?? '';
  const lib = `${LUGGAGE}/lib`;
  const script = join(to, name);
  mkdirSync(join(script, '..'), { recursive: true });
  writeFileSync(
    script,
    `#!/bin/sh\nexec ${lib}/${basename(loader)} --library-path ${lib} ${lib}/${basename(own)} "$@"\n`,
  );
  chmodSync(script, 0o755);
}

/** @returns the paths of what it is linked with */
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
