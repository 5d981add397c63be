/** Keys, queue pair numbers and PSNs: unpredictable, reproducible by seed, found again by the card. */
import { createCipheriv } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { Card } from '../../src/device/card.js';
import { ack, encodeFrame, flowOf, request, reverse } from '../../src/probe/packet/packets.js';
import { Random } from '../kit/random.js';
import { Rig } from '../kit/rig.js';

async function drawn(seed: Uint8Array, count: number): Promise<number[]> {
  const { exports } = await Card.create({ memoryBytes: 4 * 2 ** 20, txSlots: 4, rxSlots: 4, maxQp: 4, maxMr: 4, seed });
  return Array.from({ length: count }, () => exports.randomPsn());
}

/** 24 of the 32 bits of each word of a key stream. */
function words(stream: Uint8Array): number[] {
  const view = new DataView(stream.buffer, stream.byteOffset, stream.length);
  return Array.from({ length: stream.length / 4 }, (_, i) => view.getUint32(i * 4, true) & 0xffffff);
}

describe('random numbers are ChaCha20', () => {
  test('of RFC 8439, appendix A.1, vectors 1 and 2: key 0, nonce 0, blocks 0 and 1', async () => {
    const stream = Buffer.from(
      '76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7' +
        'da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586' +
        '9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed' +
        '29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f',
      'hex',
    );
    expect(await drawn(new Uint8Array(32), 32)).toEqual(words(Buffer.from(stream)));
  });

  test('as Node computes it, for any seed and many blocks', async () => {
    const seed = new Random(99).bytes(32);
    const stream = createCipheriv('chacha20', seed, new Uint8Array(16)).update(new Uint8Array(4096));
    expect(await drawn(seed, 1024)).toEqual(words(stream));
  });
});

async function numbers(seed: number): Promise<number[]> {
  const rig = await Rig.create(seed);
  const regions = [rig.region(64), rig.region(64)];
  return [...regions.flatMap(({ lkey, rkey }) => [lkey, rkey]), rig.qp().qpn, rig.qp().qpn, rig.x.randomPsn()];
}

test('the same seed gives the same numbers, another seed others', async () => {
  const first = await numbers(1);
  expect(await numbers(1)).toEqual(first);
  const second = await numbers(2);
  expect(second.filter((number) => first.includes(number))).toEqual([]);
});

test('local and remote key differ in the tag, no key is given twice, and no index is 0', async () => {
  const rig = await Rig.create(3, { maxMr: 1024 });
  const ptr = rig.x.memAlloc(4096);
  const regions = Array.from({ length: 1024 }, () => rig.regionAt(ptr, 4096));
  for (const { lkey, rkey } of regions) {
    expect(lkey).not.toBe(rkey);
    expect(lkey >>> 8).toBe(rkey >>> 8);
    expect(rkey >>> 8).not.toBe(0);
  }
  expect(new Set(regions.flatMap(({ lkey, rkey }) => [lkey, rkey])).size).toBe(2048);
  expect(() => rig.regionAt(ptr, 4096)).toThrow('ENOMEM');
});

test('keys do not follow each other: of 1000 successive keys none is near the next', async () => {
  const rig = await Rig.create(4, { maxMr: 1024 });
  const ptr = rig.x.memAlloc(4096);
  const indexes = Array.from({ length: 1000 }, () => rig.regionAt(ptr, 64).rkey >>> 8);
  const near = indexes.filter((index, i) => i > 0 && Math.abs(index - (indexes[i - 1] as number)) < 256);
  expect(near.length).toBeLessThan(4);
  const [lower, upper] = [indexes.filter((index) => index < 1 << 23).length, 1000];
  expect(lower / upper).toBeGreaterThan(0.4);
  expect(lower / upper).toBeLessThan(0.6);
});

test('a released key is not given again soon', async () => {
  const rig = await Rig.create(5);
  const ptr = rig.x.memAlloc(4096);
  const first = rig.regionAt(ptr, 64);
  rig.x.mrDereg(first.mr);
  expect(rig.regionAt(ptr, 64).rkey >>> 8).not.toBe(first.rkey >>> 8);
});

test('queue pair numbers have 24 bits, and none is given twice or reserved', async () => {
  const rig = await Rig.create(6, { maxQp: 512, memoryBytes: 32 * 2 ** 20 });
  const sizes = { sendWr: 1, recvWr: 1, sge: 1, inline: 0, cqe: 1 };
  const numbers = Array.from({ length: 512 }, () => rig.qp(sizes).qpn);
  expect(new Set(numbers).size).toBe(512);
  expect(numbers.every((qpn) => qpn > 1 && qpn < 0xffffff)).toBe(true);
  expect(() => rig.qp(sizes)).toThrow('ENOMEM');
});

test('a queue pair number is not given again while a peer may remember it', async () => {
  const rig = await Rig.create(8);
  const cq = rig.x.cqCreate(1);
  const lastUse = new Map<number, number>();
  const gaps: number[] = [];
  // random numbers alone would come back five times
  for (let n = 0; n < 20_000; n++) {
    const qp = rig.qp({ cq, sendWr: 1, recvWr: 1, sge: 1, inline: 0 });
    gaps.push(n - (lastUse.get(qp.qpn) ?? Number.NEGATIVE_INFINITY));
    lastUse.set(qp.qpn, n);
    rig.x.qpDestroy(qp.handle);
  }
  expect(gaps.filter((gap) => gap <= 4096)).toEqual([]);
});

test('the table finds every object, however many have been added and removed', async () => {
  const rig = await Rig.create(7, { maxMr: 64, maxQp: 4 });
  const random = new Random(7);
  const ptr = rig.x.memAlloc(4096);
  const qp = rig.qp().connect({ destQpn: 0x22, sqPsn: 0, rqPsn: 0, maxDestRdAtomic: 1 });
  const there = flowOf({ destQp: qp.qpn });
  const held: { mr: number; rkey: number }[] = [];
  let psn = 0;
  /** Returns whether the card acknowledges a WRITE of one byte under this key. */
  const isKnown = (rkey: number): boolean => {
    const payload = Uint8Array.of(psn & 255);
    const [answer] = rig.in(psn, encodeFrame(there, request.writeOnly({ psn, va: 0n, rkey, payload, ackReq: true })));
    const expected = encodeFrame(reverse(there), ack({ psn, msn: psn + 1 }));
    psn++;
    return answer !== undefined && Buffer.compare(answer, expected) === 0;
  };
  for (let step = 0; step < 1500; step++) {
    if (held.length < 64 && random.chance(held.length < 32 ? 0.7 : 0.5)) held.push(rig.regionAt(ptr, 64, 15, 0n));
    else {
      const [gone] = held.splice(random.below(held.length), 1);
      if (gone) rig.x.mrDereg(gone.mr);
    }
    if (held.length > 0) expect(isKnown(random.pick(held).rkey), `step ${step}`).toBe(true);
  }
  for (const { rkey } of held) expect(isKnown(rkey)).toBe(true);
  const [gone] = held;
  if (gone) rig.x.mrDereg(gone.mr);
  expect(isKnown(gone?.rkey ?? 0)).toBe(false);
});
