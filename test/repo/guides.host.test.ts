// The programs of the guides run as they are printed there, and print what the guides say.
import { expect, test } from 'vitest';
import { programsOf, runProgram } from './programs.js';
import { sources } from './sources.js';

test.each([...sources('docs/verbs', '.md'), 'docs/one-host.md'])(
  'the programs of %s print what it says',
  async (path) => {
    const found = programsOf(path);
    expect(found.length).toBeGreaterThan(0);
    for (const { program, output: stdout } of found) expect(await runProgram(program)).toEqual({ stdout, stderr: '' });
  },
);

test('the test in docs/testing.md passes', async () => {
  const [printed] = programsOf('docs/testing.md');
  expect((await runProgram(printed?.program ?? '', '--test')).stdout).toMatch(/^# pass 1$[\s\S]*^# fail 0$/m);
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
  expect((await runProgram(program)).stdout.split('\n')).toEqual([
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
