// A program that is bundled as docs/bundlers.md says, with the command that is printed there.
import { execFile } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeIf } from '../kit/privileges.js';
import { type Installed, install } from './installed.js';
import { README_OUTPUT, readmePrograms } from './readme.js';
import { ROOT, text } from './sources.js';

const built = existsSync(join(ROOT, 'dist/index.js'));

describeIf({ ok: built, reason: 'dist is not built: npm run build' }, 'a bundle by esbuild', () => {
  let installed: Installed;
  beforeAll(async () => {
    installed = await install(['esbuild']);
    writeFileSync(join(installed.folder, 'program.js'), readmePrograms()[0] as string);
    const common = `
      const devices = [];
      for (const mode of ['inline', 'worker']) {
        devices.push(await openDevice({ link: 'udp', mode, addresses: ['127.0.0.' + (81 + devices.length)], memoryBytes: 2 ** 25 }));
      }
      for (const device of devices) { console.log(device.mode, device.queryPort().state); await device.close(); }`;
    writeFileSync(
      join(installed.folder, 'host.js'),
      `import { openDevice } from 'wasm-roce'; (async () => { ${common} })();`,
    );
  }, 120_000);
  afterAll(() => installed?.remove());

  const execute = async (command: string, ...args: string[]) =>
    (await promisify(execFile)(command, args, { cwd: installed.folder, timeout: 20_000 })).stdout;

  /** The command of docs/bundlers.md, with other values of its options. */
  async function bundle(changes: Readonly<Record<string, string>> = {}): Promise<void> {
    const [, printed = ''] = /^npx esbuild (.*)$/m.exec(text('docs/bundlers.md')) ?? [];
    const words = printed.split(' ').map((word) => changes[word] ?? word);
    await execute(join(ROOT, 'node_modules/.bin/esbuild'), ...words.filter((word) => word !== ''));
  }

  test('runs the first program of README', async () => {
    await bundle();
    expect(await execute(process.execPath, 'bundle.mjs')).toBe(README_OUTPUT[0]);
  });

  test.each(['esm', 'cjs'])('finds the addon and the program of the card thread, format %s', async (format) => {
    const outfile = format === 'cjs' ? 'bundle.cjs' : 'bundle.mjs';
    await bundle({
      'program.js': 'host.js',
      '--format=esm': `--format=${format}`,
      '--outfile=bundle.mjs': `--outfile=${outfile}`,
    });
    expect(await execute(process.execPath, outfile)).toBe('inline ACTIVE\nworker ACTIVE\n');
  });

  test('that contains the package says what is wrong', async () => {
    await bundle({ '--external:wasm-roce': '' });
    const { stderr } = await execute(process.execPath, 'bundle.mjs').then(
      () => ({ stderr: '' }),
      (failed) => failed,
    );
    expect(stderr).toMatch(/EOPNOTSUPP: the card cannot be read from .* leave the package wasm-roce out of its bundle/);
  });
});
