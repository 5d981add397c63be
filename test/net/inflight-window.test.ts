import { expect, describe as group, test } from 'vitest';
import { type Impairments, Net } from '../kit/net.js';
import { connectPair } from '../kit/pair.js';
import { type Region, Rig, type RigQp } from '../kit/rig.js';

const MESSAGE = 1 << 20;
const MESSAGES = 32;
const SMALL = { memoryBytes: 12 << 20, rxSlots: 512 };

/** Result of a bulk transfer. */
interface Bulk {
  readonly packets: number;
  readonly retransmits: number;
  readonly timeouts: number;
  /** Virtual nanoseconds. */
  readonly time: number;
}

async function bulkWrite(impairments: Impairments, mtu = 1024): Promise<Bulk> {
  const [a, b] = [await Rig.create(1, SMALL), await Rig.create(2, SMALL)];
  const [qp, peer] = [a.qp(), b.qp()];
  const [from, to] = [a.region(MESSAGE), b.region(MESSAGE)];
  const words = new Uint32Array(from.bytes.buffer, from.bytes.byteOffset, MESSAGE / 4);
  words.forEach((_, i) => {
    words[i] = Math.imul(4 * i + 1, 0x9e3779b1);
  });
  connectPair(qp, 0, peer, 1, { mtu, timeout: 12 });
  const net = new Net([a, b], 7);
  net.impair(0, impairments);
  net.impair(1, { delay: impairments.delay ?? 0 });
  const done = feed(net, qp, from, to);
  const start = net.now;
  net.run();
  expect(done()).toBe(MESSAGES);
  expect(Buffer.compare(from.bytes, to.bytes)).toBe(0);
  const { retransmits = 0, local_ack_timeout_err: timeouts = 0 } = qp.counters();
  return { packets: net.counters.sent, retransmits, timeouts, time: net.now - start };
}

/** Keeps two WRITEs posted; returns the number that are done. */
function feed(net: Net, qp: RigQp, from: Region, to: Region): () => number {
  let posted = 0;
  let done = 0;
  net.application = () => {
    const before = posted + done;
    for (const wc of qp.poll()) {
      expect(wc.status).toBe('SUCCESS');
      done++;
    }
    for (; posted < MESSAGES && posted - done < 2; posted++)
      qp.send({ opcode: 'RDMA_WRITE', pieces: [from.piece(0, MESSAGE)], remote: { va: to.iova, rkey: to.rkey } });
    return posted + done !== before;
  };
  return () => done;
}

group('a bottleneck in the network', () => {
  // A software peer: 3 us per frame, a socket buffer for `queue` frames, 20 us away. Frames beyond it are lost in a
  // burst. The window learns from losses; go-back-N may cost a part of all packets, the more the shorter the queue is,
  // but never a multiple of them. The bound is half again as much as was measured.
  test.each([
    { queue: 8, repeated: 0.34, timeouts: 5, slower: 2.5 },
    { queue: 16, repeated: 0.14, timeouts: 5, slower: 2.5 },
    { queue: 32, repeated: 0.09, timeouts: 5, slower: 2 },
    { queue: 64, repeated: 0.09, timeouts: 5, slower: 2 },
    { queue: 128, repeated: 0.09, timeouts: 5, slower: 2 },
  ])('with room for $queue frames does not collapse throughput', async ({ queue, repeated, timeouts, slower }) => {
    const frameTime = 3000;
    const bulk = await bulkWrite({ frameTime, queue, delay: 20_000 });
    const needed = (MESSAGE / 1024) * MESSAGES;
    // the least possible time: either the bottleneck is never idle, or the pipe is always as full as the queue allows
    const least = needed * Math.max(frameTime, (2 * 20_000 + frameTime) / queue);
    expect(bulk.retransmits / needed).toBeLessThan(repeated);
    expect(bulk.timeouts).toBeLessThan(timeouts);
    expect(bulk.time / least).toBeLessThan(slower);
  });

  test('with room for one peer’s first window only is overrun once', async () => {
    const overrun = await bulkWrite({ frameTime: 500, queue: 270, delay: 5000 });
    expect(overrun.retransmits).toBeGreaterThan(0);
    // everything in flight when the first frame was lost: 270 in the queue, 20 on the wire
    expect(overrun.retransmits).toBeLessThan(300);
    expect(overrun.timeouts).toBe(0);
  });

  test('a wide path loses nothing, and the window is full', async () => {
    const bulk = await bulkWrite({ delay: 5000 });
    expect(bulk).toMatchObject({ retransmits: 0, timeouts: 0 });
  });

  test('a run with the same seed gives the same figures', async () => {
    const impairments = { frameTime: 3000, queue: 24, delay: 20_000, drop: 0.001 };
    expect(await bulkWrite(impairments)).toEqual(await bulkWrite(impairments));
  });
});
