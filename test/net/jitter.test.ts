/** One WRITE of 1 MiB over a path whose delay varies, so that packets overtake each other; in virtual time. */
import { expect, describe as group, test } from 'vitest';
import { type Impairments, Net } from '../kit/net.js';
import { connectPair } from '../kit/pair.js';
import { Rig } from '../kit/rig.js';

const MESSAGE = 1 << 20;
const MTU = 1024;
const [MILLISECOND, SECOND] = [1e6, 1e9];
/** 50 ± 20 ms, each packet on its own. */
const JITTER: Impairments = { delay: 30 * MILLISECOND, jitter: 40 * MILLISECOND };

interface Result {
  /** Virtual nanoseconds. */
  readonly time: number;
  /** Packets sent again for each that was needed. */
  readonly repeated: number;
}

/** @param goBackN the responder drops what arrives ahead of a gap */
async function write(impairments: Impairments, seed: number, goBackN: boolean): Promise<Result> {
  const sizes = { memoryBytes: 12 << 20, rxSlots: 512 };
  const [a, b] = [await Rig.create(1, sizes), await Rig.create(2, sizes)];
  if (goBackN) b.x.setReorderWindow(0);
  const [qp, peer] = [a.qp(), b.qp()];
  const [from, to] = [a.region(MESSAGE), b.region(MESSAGE)];
  const words = new Uint32Array(from.bytes.buffer, from.bytes.byteOffset, MESSAGE / 4);
  words.forEach((_, i) => {
    words[i] = Math.imul(4 * i + 1, 0x9e3779b1);
  });
  connectPair(qp, 0, peer, 1, { mtu: MTU, timeout: 18 });
  const net = new Net([a, b], seed);
  net.impair(0, impairments);
  net.impair(1, impairments);
  const statuses: string[] = [];
  net.application = () => {
    const before = statuses.length;
    statuses.push(...qp.poll().map(({ status }) => status));
    return statuses.length !== before;
  };
  const start = net.now;
  qp.send({ opcode: 'RDMA_WRITE', pieces: [from.piece(0, MESSAGE)], remote: { va: to.iova, rkey: to.rkey } });
  while (statuses.length === 0 && net.turn());
  expect(statuses).toEqual(['SUCCESS']);
  expect(Buffer.compare(from.bytes, to.bytes)).toBe(0);
  const { retransmits = 0 } = qp.counters();
  return { time: net.now - start, repeated: retransmits / (MESSAGE / MTU) };
}

/** The means of eight runs. */
async function writes(impairments: Impairments, goBackN = false): Promise<Result> {
  const all: Result[] = [];
  for (let seed = 1; seed <= 8; seed++) all.push(await write(impairments, seed, goBackN));
  const mean = (of: (one: Result) => number) => all.reduce((sum, one) => sum + of(one), 0) / all.length;
  return { time: mean(({ time }) => time), repeated: mean(({ repeated }) => repeated) };
}

// Go-back-N at both ends needs 54 s, with 1.9 packets sent again for each that was needed.
group('a delay of 50 ms that varies by 20 ms', () => {
  test('takes a few seconds where the responder has a reorder buffer', async () => {
    const { time, repeated } = await writes(JITTER);
    expect(time).toBeLessThan(3.5 * SECOND);
    expect(repeated).toBeLessThan(1);
  });

  test('takes no longer than before where it has none', async () => {
    const { time, repeated } = await writes(JITTER, true);
    expect(time).toBeLessThan(60 * SECOND);
    expect(repeated).toBeLessThan(2.1);
  });

  test('takes a few seconds more where 1 % of the packets are lost', async () => {
    expect((await writes({ ...JITTER, drop: 0.01 })).time).toBeLessThan(9 * SECOND);
  });
});
