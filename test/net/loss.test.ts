/** The speed that remains when frames are lost both ways, in virtual time: exact, and the same in every run. */
import { describe, expect, test } from 'vitest';
import { Net } from '../kit/net.js';
import { connectPair } from '../kit/pair.js';
import { Rig } from '../kit/rig.js';

const SMALL = { memoryBytes: 12 << 20, rxSlots: 512 };
/** 10 Gbit/s, 20 us away. */
const WIRE = { frameTime: 3400, delay: 20_000 };
/** Nanoseconds of the ACK timer, the default. */
const ACK_TIMER = 4096 * 2 ** 14;

interface Work {
  readonly opcode: 'RDMA_WRITE' | 'RDMA_READ' | 'SEND';
  readonly bytes: number;
  readonly count: number;
  /** Work requests posted at a time. */
  readonly depth: number;
}

interface Transfer {
  /** Virtual nanoseconds. */
  readonly time: number;
  readonly counters: Readonly<Record<string, number>>;
}

async function transfer(work: Work, drop: number, adaptive = true): Promise<Transfer> {
  const [a, b] = [await Rig.create(1, SMALL), await Rig.create(2, SMALL)];
  const [qp, peer] = [a.qp({ adaptive }), b.qp()];
  const [own, theirs] = [a.region(work.bytes), b.region(work.bytes)];
  const [from, to] = work.opcode === 'RDMA_READ' ? [theirs, own] : [own, theirs];
  for (let i = 0; i < work.bytes; i++) from.bytes[i] = Math.imul(i + 1, 0x9e3779b1) >>> 24;
  connectPair(qp, 0, peer, 1, { mtu: 4096 });
  const net = new Net([a, b], 7);
  for (const port of [0, 1]) net.impair(port, { ...WIRE, drop });
  const done = feed();
  const start = net.now;
  while (done() < work.count && net.turn());
  const time = net.now - start;
  expect(done()).toBe(work.count);
  expect(Buffer.compare(from.bytes, to.bytes)).toBe(0);
  return { time, counters: qp.counters() };

  /** Keeps the queues full; returns the number of requests that are done. */
  function feed(): () => number {
    const { opcode, bytes, count, depth } = work;
    const wr = { opcode, pieces: [own.piece(0, bytes)], remote: { va: theirs.iova, rkey: theirs.rkey } };
    const recv = (): string => (opcode === 'SEND' ? peer.recv(0, [theirs.piece(0, bytes)]) : 'OK');
    let posted = 0;
    let completed = 0;
    // a receive completes late, with its ACK: in between, as many receives again are needed
    for (let i = 0; i < 2 * depth; i++) expect(recv()).toBe('OK');
    net.application = () => {
      const before = posted + completed;
      for (const { status } of qp.poll()) {
        expect(status).toBe('SUCCESS');
        completed++;
      }
      for (const { status } of peer.poll()) expect([status, recv()]).toEqual(['SUCCESS', 'OK']);
      for (; posted < count && posted - completed < depth; posted++) expect(qp.send(wr)).toBe('OK');
      return posted + completed !== before;
    };
    return () => completed;
  }
}

// The least fraction of the speed without loss. The rest costs little more than the minimum timeout for each ACK that
// never comes: long for the first, short for all others.
describe.each<Work & { readonly least: readonly [number, number] }>([
  { opcode: 'RDMA_WRITE', bytes: 1 << 20, count: 32, depth: 4, least: [0.4, 0.12] },
  { opcode: 'RDMA_READ', bytes: 1 << 20, count: 32, depth: 4, least: [0.33, 0.07] },
  { opcode: 'RDMA_WRITE', bytes: 4096, count: 2000, depth: 16, least: [0.5, 0.15] },
  { opcode: 'SEND', bytes: 4096, count: 2000, depth: 16, least: [0.5, 0.15] },
  { opcode: 'RDMA_READ', bytes: 4096, count: 2000, depth: 4, least: [0.5, 0.35] },
  { opcode: 'SEND', bytes: 64, count: 2000, depth: 1, least: [0.5, 0.2] },
])('$opcode of $bytes bytes, $depth at a time', ({ least, ...work }) => {
  test('keeps its speed when 1 % or 5 % of the frames are lost, without waiting for the ACK timer', async () => {
    const clean = await transfer(work, 0);
    expect(clean.counters.roce_adp_retrans).toBeUndefined();
    for (const [i, drop] of [0.01, 0.05].entries()) {
      const { time, counters } = await transfer(work, drop);
      expect(clean.time / time).toBeGreaterThan(least[i] as number);
      // one that occurs before a round trip could be measured
      expect(counters.local_ack_timeout_err ?? 0).toBeLessThanOrEqual(1);
    }
  });
});

// Few packets are sent only once at such a loss, and most measure no round trip.
test.each<Work>([
  { opcode: 'RDMA_READ', bytes: 180 * 4096, count: 4, depth: 1 },
  { opcode: 'RDMA_READ', bytes: 16_384, count: 100, depth: 4 },
  { opcode: 'RDMA_READ', bytes: 4096, count: 400, depth: 1 },
  { opcode: 'RDMA_WRITE', bytes: 180 * 4096, count: 4, depth: 1 },
  { opcode: 'SEND', bytes: 64, count: 400, depth: 8 },
])('$opcode of $bytes bytes waits for the ACK timer at first only when 20 % of the frames are lost', async (work) => {
  const { counters } = await transfer(work, 0.2);
  expect(counters.local_ack_timeout_err ?? 0).toBeLessThanOrEqual(2);
});

test('without adaptive retransmission, each lost answer costs the ACK timer', async () => {
  const work: Work = { opcode: 'SEND', bytes: 64, count: 500, depth: 1 };
  const { time, counters } = await transfer(work, 0.01, false);
  const { local_ack_timeout_err: timeouts = 0, roce_adp_retrans } = counters;
  expect([timeouts > 5, roce_adp_retrans]).toEqual([true, undefined]);
  expect(time).toBeGreaterThan(timeouts * ACK_TIMER);
});
