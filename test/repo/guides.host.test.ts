// The programs of the guides run as they are printed there, and print what the guides say.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT, sources, text } from './sources.js';

const run = promisify(execFile);
let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'wasm-roce-guides-'));
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(ROOT, join(folder, 'node_modules/wasm-roce'));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** The JavaScript programs of a document, each with the output that is printed behind it. */
function programs(path: string): [program: string, output: string][] {
  const found = text(path).matchAll(/^```js\n([\s\S]*?)^```\n(?:\nIt prints:\n\n```\n([\s\S]*?)^```\n)?/gm);
  return Array.from(found, ([, program = '', output = '']) => [program, output]);
}

async function execute(program: string, ...options: string[]): Promise<string> {
  const file = join(folder, 'program.mjs');
  writeFileSync(file, program);
  const { stdout, stderr } = await run(process.execPath, [...options, file], { cwd: folder, timeout: 30_000 });
  expect(stderr).toBe('');
  return stdout;
}

test.each([...sources('docs/verbs', '.md'), 'docs/one-host.md'])(
  'the programs of %s print what it says',
  async (path) => {
    const found = programs(path);
    expect(found.length).toBeGreaterThan(0);
    for (const [program, output] of found) expect(await execute(program)).toBe(output);
  },
);

test('the test in docs/testing.md passes', async () => {
  const [[program] = ['']] = programs('docs/testing.md');
  expect(await execute(program, '--test')).toMatch(/^# pass 1$[\s\S]*^# fail 0$/m);
});

test('the interfaces that docs/verbs.md names refuse the memory of a region, and the others take it', async () => {
  const program = `
    import { createHash } from 'node:crypto';
    import { gzipSync } from 'node:zlib';
    import { createMemoryHub, openDevice } from 'wasm-roce';
    const device = await openDevice({ link: 'memory', hub: createMemoryHub() });
    const { buffer } = await (await device.allocPd()).regMr(64);
    const bytes = () => new ReadableStream({ type: 'bytes', start: (to) => to.enqueue(buffer) }).getReader().read();
    const calls = {
      subtle: () => crypto.subtle.digest('SHA-256', buffer),
      Response: () => new Response(buffer).arrayBuffer(),
      Request: () => new Request('http://192.0.2.1', { method: 'POST', body: buffer }).arrayBuffer(),
      bytes,
      transfer: () => structuredClone(buffer, { transfer: [buffer.buffer] }),
      createHash: () => createHash('sha256').update(buffer).digest(),
      gzip: () => gzipSync(buffer),
      Blob: () => new Blob([buffer]).arrayBuffer(),
      copy: () => crypto.subtle.digest('SHA-256', Buffer.from(buffer)),
    };
    for (const [name, call] of Object.entries(calls))
      await (async () => call())().then(() => console.log(name, 'takes it'), () => console.log(name, 'refuses it'));
    structuredClone(buffer)[0] = 7;
    console.log('structuredClone', buffer[0] === 7 ? 'shares' : 'copies');
    await device.close({ force: true });`;
  expect((await execute(program)).split('\n')).toEqual([
    'subtle refuses it',
    'Response refuses it',
    'Request refuses it',
    'bytes refuses it',
    'transfer refuses it',
    ...['createHash takes it', 'gzip takes it', 'Blob takes it', 'copy takes it'],
    'structuredClone shares',
    '',
  ]);
});
