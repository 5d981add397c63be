/** The modules of a guest's kernel, each with those that it depends on. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';

const BIGGEST = 1 << 30;

const nameOf = (path: string) =>
  basename(path)
    .replace(/\.ko.*/, '')
    .replaceAll('-', '_');

export class KernelModules {
  readonly #release: string;
  readonly #folder: string;
  /** The files of a module: its own, then those of its dependencies, of which the last is loaded first. */
  readonly #files = new Map<string, string[]>();

  /** @param kernelFolder has the unpacked packages of the kernel */
  constructor(kernelFolder: string, release: string) {
    this.#release = release;
    if (!existsSync(join(kernelFolder, 'lib'))) symlinkSync('usr/lib', join(kernelFolder, 'lib'));
    execFileSync('depmod', ['-b', kernelFolder, release]);
    this.#folder = join(kernelFolder, 'lib/modules', release);
    for (const line of readFileSync(join(this.#folder, 'modules.dep'), 'utf8').split('\n')) {
      const files = line.split(/:? /).map((file) => file.replace(/:$/, ''));
      this.#files.set(nameOf(files[0] as string), files);
    }
  }

  /**
   * Copies modules and their dependencies to `root`/modules, and lists them in `root`/etc/`list` in the order in which
   * they are loaded.
   * @param loaded paths of modules that are loaded before
   * @returns the listed paths
   * @throws Error when the kernel has no such module
   */
  install(wanted: readonly string[], root: string, list: string, loaded: readonly string[] = []): string[] {
    const order = new Map(wanted.flatMap((name) => this.#withDependencies(name)).map((file) => [pathOf(file), file]));
    for (const path of loaded) order.delete(path);
    for (const folder of ['modules', 'etc']) mkdirSync(join(root, folder), { recursive: true });
    for (const [path, file] of order) writeFileSync(join(root, path), this.#read(file));
    writeFileSync(join(root, 'etc', list), [...order.keys(), ''].join('\n'));
    return [...order.keys()];
  }

  /** The files of a module in the order of loading; none if it is built in. */
  #withDependencies(name: string): string[] {
    const files = this.#files.get(name);
    if (files !== undefined) return files.toReversed();
    if (readFileSync(join(this.#folder, 'modules.builtin'), 'utf8').includes(`/${name}.ko`)) return [];
    throw new Error(`guest kernel ${this.#release} has no module ${name}`);
  }

  #read(file: string): Buffer {
    const path = join(this.#folder, file);
    const program = file.endsWith('.xz') ? 'xz' : file.endsWith('.zst') ? 'zstd' : undefined;
    return program ? execFileSync(program, ['-dc', path], { maxBuffer: BIGGEST }) : readFileSync(path);
  }
}

const pathOf = (file: string) => `/modules/${nameOf(file)}.ko`;
