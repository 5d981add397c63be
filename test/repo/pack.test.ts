import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeIf } from '../kit/privileges.js';
import { ROOT } from './sources.js';

const run = promisify(execFile);
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
const built = existsSync(join(ROOT, 'dist/index.js'));

describeIf({ ok: built, reason: 'dist is not built: npm run build' }, 'the packed package, installed elsewhere', () => {
  let elsewhere = '';
  let installed = '';
  let files: string[] = [];

  /** Stands in for an install from the registry, which tests cannot reach. */
  function link(name: string): void {
    const to = join(elsewhere, 'node_modules', name);
    mkdirSync(dirname(to), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', name), to);
  }

  beforeAll(async () => {
    elsewhere = mkdtempSync(join(tmpdir(), 'wasm-roce-pack-'));
    installed = join(elsewhere, 'node_modules/wasm-roce');
    const pack = ['pack', '--json', '--ignore-scripts', '--pack-destination', elsewhere];
    const [tarball] = JSON.parse((await run('npm', pack, { cwd: ROOT })).stdout);
    files = tarball.files.map((file: { path: string }) => file.path);
    mkdirSync(installed, { recursive: true });
    await run('tar', ['-xzf', join(elsewhere, tarball.filename), '-C', installed, '--strip-components=1']);
    for (const name of [...Object.keys(manifest.dependencies ?? {}), '@types/node']) link(name);
    writeFileSync(join(elsewhere, 'package.json'), JSON.stringify({ type: 'module', private: true }));
  }, 120_000);

  afterAll(() => rmSync(elsewhere, { recursive: true, force: true }));

  test('holds what runs, its types and its licence, and none of the tests', () => {
    expect(files).toEqual(
      expect.arrayContaining([
        'dist/index.js',
        'dist/index.d.ts',
        'build/card.wasm',
        'build/card.js',
        'LICENSE',
        'README.md',
      ]),
    );
    expect(files.filter((path) => /^(test|scripts|assembly|node_modules)\//.test(path))).toEqual([]);
  });

  test('can be imported, and opens the card', async () => {
    const program = `import { openDevice } from 'wasm-roce'; console.log(typeof openDevice);`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], { cwd: elsewhere });
    expect(stdout.trim()).toBe('function');
  });

  test('brings types that tell right from wrong', async () => {
    const program = `import { openDevice } from 'wasm-roce';
      export const open: (...options: never[]) => Promise<unknown> = openDevice;
      // @ts-expect-error it is no number
      export const number: number = openDevice;`;
    writeFileSync(join(elsewhere, 'program.ts'), program);
    const options = [
      '--noEmit',
      '--strict',
      '--module',
      'NodeNext',
      '--target',
      'ES2022',
      '--lib',
      'ES2023,ESNext.Disposable,DOM',
    ];
    const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
    const { stdout } = await run(process.execPath, [tsc, ...options, 'program.ts'], { cwd: elsewhere }).catch(
      (failed) => failed,
    );
    expect(stdout).toBe('');
  }, 60_000);

  test.each(Object.entries<string>(manifest.bin))('its command %s says how it is used', async (name, path) => {
    const file = join(installed, path);
    expect(readFileSync(file, 'utf8')).toMatch(/^#!\/usr\/bin\/env node\n/);
    const { stdout } = await run(process.execPath, [file, '--help'], { cwd: elsewhere });
    expect(stdout).toContain(name);
  });
});
