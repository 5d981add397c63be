/** The work requests that a connection makes. */
import { setFlagsFromString } from 'node:v8';
import { expect, test, vi } from 'vitest';
import { connectionPair } from './connectionpair.js';

setFlagsFromString('--allow-natives-syntax');
const haveSameMap = new Function('a', 'b', 'return %HaveSameMap(a, b)') as (a: unknown, b: unknown) => boolean;

const COUNT = 100;

// V8 looks up the properties of objects of one hidden class without a search. A hidden class for each object costs more
// memory than the object, and lasts longer.
test('the work requests of one kind have one hidden class', async () => {
  await using ends = await connectionPair({ a: { receives: 8 }, b: { receives: 8 } });
  const { remote } = await ends.b.share(4096);
  const imm = { imm: 1 };
  const bytes = Buffer.alloc(64);
  const kinds: Record<string, () => Promise<unknown>> = {
    send: () => ends.a.send(bytes),
    'send with immediate': () => ends.a.send(bytes, imm),
    write: () => ends.a.write(remote, bytes),
    'write with immediate': () => ends.a.write(remote, bytes, imm),
    read: () => ends.a.read(remote, { length: 64 }),
    'fetch and add': () => ends.a.fetchAdd(remote, 1n),
    'compare and swap': () => ends.a.compareSwap(remote, 1n, 2n),
  };
  const posted = vi.spyOn(ends.a.qp, 'postSend');
  void (async () => {
    for await (const _message of ends.b);
  })().catch(() => {});
  const found: Record<string, boolean> = {};
  for (const [kind, request] of Object.entries(kinds)) {
    posted.mockClear();
    for (let i = 0; i < COUNT; i++) {
      await request();
      // requests of other kinds in between, as programs make them
      await ends.a.read(remote, { length: 8 });
    }
    const [first, ...others] = posted.mock.calls.map(([wr]) => wr).filter((_, i) => i % 2 === 0);
    found[kind] = others.length === COUNT - 1 && others.every((wr) => haveSameMap(first, wr));
  }
  expect(found).toEqual(Object.fromEntries(Object.keys(kinds).map((kind) => [kind, true])));
});
