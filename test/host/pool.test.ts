/** The card's own memory: blocks do not overlap, are aligned and zeroed, and all of it comes back. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Rig } from '../kit/rig.js';

test('memory is handed out on pages, zeroed, and taken back', async () => {
  const { x, card } = await Rig.create();
  const before = x.memAvailable();
  const ptr = x.memAlloc(5000);
  expect(ptr % 4096).toBe(0);
  expect(card.bytes.subarray(ptr, ptr + 5000).every((byte) => byte === 0)).toBe(true);
  card.bytes.fill(0xee, ptr, ptr + 5000);
  expect(x.memAvailable()).toBeLessThanOrEqual(before - 5000);
  x.memFree(ptr);
  expect(x.memAvailable()).toBe(before);
  const again = x.memAlloc(5000);
  expect(again).toBe(ptr);
  expect(card.bytes.subarray(ptr, ptr + 5000).every((byte) => byte === 0)).toBe(true);
});

test('what cannot be had is answered with 0, and costs nothing', async () => {
  const { x } = await Rig.create();
  const before = x.memAvailable();
  for (const bytes of [16 * 2 ** 20, 2 ** 31, 2 ** 32 - 1]) expect(x.memAlloc(bytes)).toBe(0);
  expect(x.memAvailable()).toBe(before);
});

/** Bytes of the largest block that can be had. */
function largest(x: Rig['x']): number {
  let [fits, fails] = [0, x.memAvailable() + 1];
  while (fails - fits > 1) {
    const bytes = Math.floor((fits + fails) / 2);
    const ptr = x.memAlloc(bytes);
    if (ptr === 0) fails = bytes;
    else {
      x.memFree(ptr);
      fits = bytes;
    }
  }
  return fits;
}

test('memory can be used up to the last block, and is whole again afterwards', async () => {
  const { x } = await Rig.create(1, { memoryBytes: 4 * 2 ** 20 });
  const before = x.memAvailable();
  const most = largest(x);
  const all: number[] = [];
  for (let ptr = x.memAlloc(4096); ptr !== 0; ptr = x.memAlloc(4096)) all.push(ptr);
  expect(new Set(all).size).toBe(all.length);
  for (const ptr of all.filter((_, i) => i % 2 === 0)) x.memFree(ptr);
  for (const ptr of all.filter((_, i) => i % 2 === 1)) x.memFree(ptr);
  expect(x.memAvailable()).toBe(before);
  expect(largest(x)).toBe(most);
});

test('any order of taking and giving back: no overlap, what is written stays, all comes back', async () => {
  const { x, card } = await Rig.create();
  const before = x.memAvailable();
  const step = fc.oneof(
    { weight: 3, arbitrary: fc.record({ bytes: fc.oneof(fc.nat(300), fc.nat(20_000), fc.nat(2 ** 20)) }) },
    { weight: 2, arbitrary: fc.record({ free: fc.nat() }) },
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const held: { ptr: number; bytes: number; mark: number }[] = [];
      const release = (i: number): void => {
        const [block] = held.splice(i, 1);
        if (block === undefined) return;
        const { ptr, bytes, mark } = block;
        for (const at of [0, bytes >> 1, bytes - 1]) if (bytes) expect(card.bytes[ptr + at]).toBe(mark);
        x.memFree(ptr);
      };
      steps.forEach((each, n) => {
        if ('free' in each) {
          release(each.free % Math.max(1, held.length));
          return;
        }
        const ptr = x.memAlloc(each.bytes);
        if (ptr === 0) return;
        expect(ptr % 4096).toBe(0);
        for (const other of held) {
          const isApart = ptr + each.bytes <= other.ptr || other.ptr + other.bytes <= ptr;
          expect(isApart, `${ptr}+${each.bytes} and ${other.ptr}+${other.bytes}`).toBe(true);
        }
        for (const at of [0, each.bytes >> 1, each.bytes - 1]) if (each.bytes) expect(card.bytes[ptr + at]).toBe(0);
        const mark = (n % 255) + 1;
        card.bytes.fill(mark, ptr, ptr + each.bytes);
        held.push({ ptr, bytes: each.bytes, mark });
      });
      while (held.length > 0) release(0);
      expect(x.memAvailable()).toBe(before);
    }),
    { numRuns: 100, seed: 4791 },
  );
});

test('objects give back their memory: domains, regions, queues, queue pairs', async () => {
  const rig = await Rig.create();
  const before = rig.x.memAvailable();
  for (let round = 0; round < 3; round++) {
    const qp = rig.qp();
    qp.connect({ destQpn: 1, sqPsn: 0, rqPsn: 0 });
    const region = rig.region(1000);
    const pd = rig.x.pdAlloc();
    expect(rig.x.pdFree(rig.pd)).toBe(rig.x.Errno.EBUSY);
    rig.x.mrDereg(region.mr);
    rig.x.memFree(region.ptr);
    expect(rig.x.cqDestroy(qp.cq)).toBe(rig.x.Errno.EBUSY);
    rig.x.qpDestroy(qp.handle);
    expect(rig.x.cqDestroy(qp.cq)).toBe(0);
    expect(rig.x.pdFree(pd)).toBe(0);
    expect(rig.x.memAvailable()).toBe(before);
  }
  expect(rig.x.pdFree(rig.pd)).toBe(0);
});

test('a queue pair for which memory is short leaves nothing behind', async () => {
  const rig = await Rig.create(1, { memoryBytes: 4 * 2 ** 20 });
  const cq = rig.x.cqCreate(16);
  const before = rig.x.memAvailable();
  const create = (sendWr: number, recvWr: number) =>
    rig.x.qpCreate(rig.pd, rig.x.QpType.RC, cq, cq, sendWr, recvWr, 32, 32, 1024, false, 0);
  expect(create(32768, 1)).toBe(0);
  expect(create(1, 32768)).toBe(0);
  expect(rig.errno(rig.x.lastErrno())).toBe('ENOMEM');
  expect(rig.x.memAvailable()).toBe(before);
  expect(rig.x.cqDestroy(cq)).toBe(0);
});
