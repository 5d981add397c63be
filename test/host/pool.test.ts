/**
 * The card's memory: blocks do not overlap, are aligned and zeroed, and are all released. Memory that the application
 * has once had never belongs to the card's objects.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ack, encodeFrame, type Flow, flowOf, request } from '../../src/probe/packet/packets.js';
import { Random } from '../kit/random.js';
import { Rig, type RigQp } from '../kit/rig.js';

test('pages are zeroed, and taken back', async () => {
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

test('memory of a released object is zeroed, for another object and for the application', async () => {
  const { x, card } = await Rig.create();
  // these fill the gaps that alignment has left, so that a queue and its completions are side by side
  for (let i = 0; i < 100; i++) x.cqCreate(1);
  const entries = 32_768;
  const cq = x.cqCreate(entries);
  const from = cq + 4096;
  const scribble = (bytes: number) => card.bytes.fill(0xee, from, cq + bytes);
  const isZero = (begin: number, bytes: number) => card.bytes.subarray(begin, cq + bytes).every((byte) => byte === 0);
  expect(isZero(from, entries * 64)).toBe(true);
  scribble(entries * 64);
  x.cqDestroy(cq);
  expect(x.cqCreate(2 * entries)).toBe(cq);
  expect(isZero(from, 2 * entries * 64)).toBe(true);
  scribble(2 * entries * 64);
  x.cqDestroy(cq);
  const ptr = x.memAlloc(x.memAvailable() - 65_536);
  expect(ptr).toBeGreaterThan(from);
  expect(ptr).toBeLessThan(from + 100_000);
  expect(isZero(ptr, 2 * entries * 64)).toBe(true);
});

test('a request that cannot be met returns 0, and takes nothing', async () => {
  const { x } = await Rig.create();
  const before = x.memAvailable();
  for (const bytes of [16 * 2 ** 20, 2 ** 31, 2 ** 32 - 1]) expect(x.memAlloc(bytes)).toBe(0);
  expect(x.memAvailable()).toBe(before);
});

/** Bytes of the largest block that can be allocated. */
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

test('any order of allocations and releases: nothing overlaps, contents stay, and all memory is free in the end', async () => {
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

test('domains, regions, queues and queue pairs give back their memory', async () => {
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

test('a queue pair that does not fit leaves nothing behind', async () => {
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

/** A connected queue pair, whose messages number `psn` and following are expected. */
interface Talker {
  readonly qp: RigQp;
  psn: number;
}

function talker(rig: Rig, wrs: number): Talker {
  const sizes = { sendWr: wrs, recvWr: wrs };
  return { qp: rig.qp(sizes).connect({ destQpn: 0x11, sqPsn: 0, rqPsn: 0 }), psn: 0 };
}

function destroy({ qp }: Talker): void {
  qp.rig.x.qpDestroy(qp.handle);
  qp.rig.x.cqDestroy(qp.cq);
}

/** Sends a message and receives one, with regions of its own. */
function talk(talker: Talker): void {
  const { qp, psn } = talker;
  const { rig } = qp;
  const [from, to] = [rig.region(100), rig.region(100)];
  qp.recv(7, [to.piece(0, 100)]);
  qp.send({ opcode: 'SEND', pieces: [from.piece(0, 100)] });
  expect(rig.out(psn * 1000 + 1).length).toBe(1);
  const there: Flow = { ...flowOf({ srcIp: '10.0.0.2', dstIp: '10.0.0.1' }), destQp: qp.qpn };
  const payload = Uint8Array.from({ length: 100 }, (_, i) => i + psn);
  rig.in(psn * 1000 + 2, encodeFrame(there, request.sendOnly({ psn, ackReq: true, payload })));
  rig.in(psn * 1000 + 3, encodeFrame(there, ack({ psn, msn: psn + 1 })));
  expect(qp.poll().map(({ status }) => status)).toEqual(['SUCCESS', 'SUCCESS']);
  expect(Buffer.compare(to.bytes, payload)).toBe(0);
  talker.psn++;
  for (const { mr, ptr } of [from, to]) {
    expect(rig.x.mrDereg(mr)).toBe(0);
    rig.x.memFree(ptr);
  }
}

test('a write to released memory damages no object and no list', async () => {
  const rig = await Rig.create();
  const { x } = rig;
  const before = x.memAvailable();
  const sizes = [1, 64, 4000, 4096, 4097, 65536, 2 ** 20];
  const stale = sizes.map((bytes) => rig.region(bytes));
  for (const { mr, ptr } of stale) {
    x.mrDereg(mr);
    x.memFree(ptr);
  }
  const random = new Random(4791);
  const scribble = () => {
    for (const { bytes } of stale) bytes.fill(random.pick([0, 1, 0x40, 0x80, 0xff]));
  };
  const talkers: Talker[] = [];
  for (let round = 0; round < 200; round++) {
    scribble();
    talkers.push(talker(rig, 1 << random.below(8)));
    scribble();
    const blocks = Array.from({ length: 4 }, () => x.memAlloc(random.pick(sizes)));
    scribble();
    for (const each of talkers) talk(each);
    if (talkers.length > 10) destroy(talkers.splice(random.below(talkers.length), 1)[0] as Talker);
    scribble();
    for (const ptr of blocks) x.memFree(ptr);
  }
  for (const each of talkers) destroy(each);
  expect(x.memAvailable()).toBe(before);
});

test('objects never lie where the application has had memory, nor the other way round', async () => {
  const step = fc.oneof(
    { weight: 3, arbitrary: fc.record({ bytes: fc.oneof(fc.nat(300), fc.nat(20_000), fc.nat(2 ** 19)) }) },
    { weight: 2, arbitrary: fc.record({ free: fc.nat() }) },
    { weight: 3, arbitrary: fc.record({ cqe: fc.integer({ min: 1, max: 4000 }) }) },
    { weight: 2, arbitrary: fc.record({ destroy: fc.nat() }) },
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 80 }), async (steps) => {
      const { x } = await Rig.create(1, { memoryBytes: 2 ** 21, txSlots: 16, rxSlots: 16 });
      const before = x.memAvailable();
      const [blocks, cqs]: [number[], number[]] = [[], []];
      let lowest = Number.POSITIVE_INFINITY;
      for (const each of steps) {
        if ('bytes' in each) {
          const ptr = x.memAlloc(each.bytes);
          if (ptr === 0) continue;
          blocks.push(ptr);
          lowest = Math.min(lowest, ptr);
        } else if ('cqe' in each) {
          const cq = x.cqCreate(each.cqe);
          if (cq !== 0) cqs.push(cq);
        } else if ('free' in each) blocks.splice(each.free % (blocks.length + 1), 1).map((ptr) => x.memFree(ptr));
        else cqs.splice(each.destroy % (cqs.length + 1), 1).map((cq) => x.cqDestroy(cq));
        expect(Math.max(0, ...cqs)).toBeLessThan(lowest);
      }
      for (const ptr of blocks) x.memFree(ptr);
      for (const cq of cqs) x.cqDestroy(cq);
      expect(x.memAvailable()).toBe(before);
    }),
    { numRuns: 100, seed: 4791 },
  );
});

test('memory that the application has released is counted, but not used for objects', async () => {
  const rig = await Rig.create(1, { memoryBytes: 2 ** 22 });
  const { x } = rig;
  const [all, forObjects] = [x.memAvailable(), x.objectMemAvailable()];
  expect(forObjects).toBe(all);
  const ptr = x.memAlloc(256 * 1024);
  x.memFree(ptr);
  expect([x.memAvailable(), x.objectMemAvailable()]).toEqual([all, forObjects - 256 * 1024]);
  // the arena grows by what is missing in front of it
  const more = x.memAlloc(260 * 1024);
  expect(more).toBe(ptr - 4096);
  expect([x.memAvailable(), x.objectMemAvailable()]).toEqual([all - 260 * 1024, forObjects - 260 * 1024]);
});

test('only memory of the application can be registered', async () => {
  const rig = await Rig.create();
  const { x } = rig;
  const region = rig.regionAt(x.memAlloc(4096), 4096);
  const register = (ptr: number, length: number) => x.mrReg(rig.pd, 0, ptr, length, 1, 0, ptr);
  expect(register(region.ptr, 4096)).not.toBe(0);
  expect(register(rig.qp().handle, 64)).toBe(0);
  expect(rig.errno(x.lastErrno())).toBe('EINVAL');
  expect(register(region.ptr - 1, 64)).toBe(0);
  expect(register(region.ptr, 4097)).toBe(0);
  expect(register(0xfffffff0, 0xfffffff0)).toBe(0);
});
