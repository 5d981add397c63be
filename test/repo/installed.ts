/** The package as users get it: packed, and installed into an empty folder. */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from './sources.js';

const run = promisify(execFile);

export interface Installed {
  /** The folder of the program that uses the package. */
  readonly folder: string;
  /** The folder of the package in it. */
  readonly package: string;
  /** The tarball. */
  readonly tarball: string;
  /** The paths in the tarball. */
  readonly files: readonly string[];
  remove(): void;
}

/**
 * Packs the package, and unpacks it in an empty folder.
 * @param needs development packages that the folder has as well
 */
export async function install(needs: readonly string[] = []): Promise<Installed> {
  const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-installed-'));
  const pack = ['pack', '--json', '--ignore-scripts', '--pack-destination', folder];
  const [packed] = JSON.parse((await run('npm', pack, { cwd: ROOT })).stdout);
  const tarball = join(folder, packed.filename);
  const target = join(folder, 'node_modules/wasm-roce');
  mkdirSync(target, { recursive: true });
  await run('tar', ['-xzf', tarball, '-C', target, '--strip-components=1']);
  // Links replace an installation from the registry, which tests cannot reach.
  for (const name of [...Object.keys(manifest.dependencies ?? {}), ...needs]) {
    const to = join(folder, 'node_modules', name);
    mkdirSync(dirname(to), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', name), to);
  }
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ type: 'module', private: true }));
  const files = packed.files.map(({ path }: { path: string }) => path);
  return { folder, package: target, tarball, files, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
