/**
 * DCQCN at a bottleneck that marks instead of dropping: several cards send through one queue to one receiver. The queue
 * marks as a switch does (RED on its length, RFC 3168). Time is virtual and everything is drawn from one seed.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { CNP, encodeFrame, flowOf as packetFlow } from '../../src/probe/packet/packets.js';
import { Random } from '../kit/random.js';
import { Rig, type RigQp } from '../kit/rig.js';

/** Nanoseconds per step, of one way of a frame, and of the whole run; the first half does not count. */
const STEP = 1_000;
const WAY = 6_000;
const RUN = 60_000_000;
/** Of the bottleneck: bits per second, and the queue lengths in bytes at which it starts to mark and marks all. */
const RATE = 10e9;
const MARK_FROM = 40_000;
const MARK_ALL = 400_000;
const MARK_MOST = 0.2;
/** A card that sends. */
const SMALL = { memoryBytes: 4 * 2 ** 20, rxSlots: 128, txSlots: 128 };

interface Flow {
  readonly card: Rig;
  readonly qp: RigQp;
  readonly index: number;
  readonly remote: { va: number; rkey: number };
  /** It has received something, or may have more to send. */
  isActive: boolean;
  /** Bytes that passed the bottleneck in the second half. */
  passed: number;
}

interface Outcome {
  /** Of each flow, bits per second. */
  readonly rates: readonly number[];
  readonly meanQueue: number;
  readonly longestQueue: number;
  readonly cnps: number;
}

interface Held {
  readonly at: number;
  readonly to: Rig;
  readonly frame: Uint8Array;
}

/** Turns ECT into CE, and updates the header's checksum (RFC 1624). */
function mark(frame: Uint8Array): boolean {
  const tos = frame[15] as number;
  if ((tos & 3) === 0) return false;
  const before = (frame[14] as number) * 256 + tos;
  frame[15] = tos | 3;
  const after = (frame[14] as number) * 256 + (frame[15] as number);
  let sum = (~((frame[24] as number) * 256 + (frame[25] as number)) & 0xffff) + (~before & 0xffff) + after;
  sum = (sum & 0xffff) + (sum >>> 16);
  sum = ~((sum & 0xffff) + (sum >>> 16)) & 0xffff;
  frame[24] = sum >>> 8;
  frame[25] = sum & 0xff;
  return true;
}

interface Settings {
  readonly enabled?: boolean;
  /** Nanoseconds between two CNPs of the receiver to a flow. */
  readonly cnpInterval?: number;
  /** Nanoseconds between two CNPs to each flow that its peer has not sent. Default: there are none. */
  readonly forgedInterval?: number;
}

/** A CNP with the addresses of the flow's peer. */
function forged({ qp, index }: Flow): Uint8Array {
  const there = packetFlow({ destQp: qp.qpn, srcIp: '10.0.0.1', dstIp: `10.0.1.${index}` });
  return encodeFrame(there, {
    bth: { opcode: CNP, psn: 0, ackReq: false, solicited: false, migReq: false, becn: true },
    payload: new Uint8Array(16),
  });
}

async function run(count: number, settings: Settings = {}, seed = 1): Promise<Outcome> {
  const { enabled = true, cnpInterval = 50_000, forgedInterval = RUN } = settings;
  const random = new Random(seed);
  const receiver = await Rig.create(99, { rxSlots: 1024, maxQp: 128 });
  receiver.x.setCongestion(receiver.x.CongestionParameter.CNP_INTERVAL, cnpInterval);
  const flows: Flow[] = [];
  for (let i = 0; i < count; i++) {
    const card = await Rig.create(i + 1, SMALL);
    const { CongestionParameter } = card.x;
    card.x.setCongestion(CongestionParameter.ENABLED, enabled ? 1 : 0);
    card.x.setCongestion(CongestionParameter.ECT, 1);
    card.x.setCongestion(CongestionParameter.LINE_RATE, RATE);
    const here = { localIp: [10, 0, 0, 1], remoteIp: [10, 0, 1, i] };
    const target = receiver.region(65536);
    const theirs = receiver.qp();
    const qp = card.qp({ sendWr: 128 });
    qp.connect({
      destQpn: theirs.qpn,
      sqPsn: 0,
      rqPsn: 0,
      localIp: here.remoteIp,
      remoteIp: here.localIp,
      timeout: 17,
    });
    theirs.connect({ destQpn: qp.qpn, sqPsn: 0, rqPsn: 0, ...here });
    flows.push({ card, qp, index: i, remote: { va: target.ptr, rkey: target.rkey }, isActive: true, passed: 0 });
  }
  const source = flows.map(({ card }) => card.region(65536));

  const queue: { flow: Flow; frame: Uint8Array }[] = [];
  let queued = 0;
  let credit = 0;
  let sum = 0;
  let steps = 0;
  let longest = 0;
  const way: Held[] = [];
  for (let now = STEP; now < RUN; now += STEP) {
    for (const [i, flow] of flows.entries()) {
      if (now % forgedInterval === 0) {
        flow.card.put(forged(flow));
        flow.card.x.rx(now, 1);
      }
      const deadline = flow.card.x.nextDeadline();
      if (!flow.isActive && (deadline === 0 || deadline > now)) continue;
      while (flow.qp.attribute('SQ_PENDING') < 4) {
        const piece = (source[i] as (typeof source)[number]).piece(0, 65536);
        flow.qp.send({ opcode: 'RDMA_WRITE', pieces: [piece], remote: flow.remote, signaled: false });
      }
      flow.qp.poll();
      const frames = flow.card.out(now, 64);
      flow.isActive = frames.length > 0;
      for (const frame of frames) {
        const chance = Math.min(1, Math.max(0, (queued - MARK_FROM) / (MARK_ALL - MARK_FROM))) * MARK_MOST;
        if (queued > MARK_ALL || random.chance(chance)) mark(frame);
        queue.push({ flow, frame });
        queued += frame.length;
      }
    }
    credit = Math.min(credit + (RATE * STEP) / 8e9, 6000);
    while (queue.length > 0 && credit >= (queue[0] as (typeof queue)[number]).frame.length) {
      const { flow, frame } = queue.shift() as (typeof queue)[number];
      credit -= frame.length;
      queued -= frame.length;
      if (now > RUN / 2) flow.passed += frame.length;
      way.push({ at: now + WAY, to: receiver, frame });
    }
    while (way.length > 0 && (way[0] as Held).at <= now) {
      const { to, frame } = way.shift() as Held;
      to.put(frame);
    }
    if (receiver.x.rx(now, 256) > 0)
      for (const frame of receiver.out(now)) {
        const flow = flows[frame[33] as number] as Flow;
        flow.card.put(frame);
        flow.card.x.rx(now, 256);
        flow.isActive = true;
      }
    if (now <= RUN / 2) continue;
    steps++;
    sum += queued;
    longest = Math.max(longest, queued);
  }
  return {
    rates: flows.map(({ passed }) => (passed * 8e9) / (RUN / 2)),
    meanQueue: sum / steps,
    longestQueue: longest,
    cnps: flows.reduce((all, { card }) => all + (card.counters().rp_cnp_handled ?? 0), 0),
  };
}

/** Jain's fairness index: 1 = all alike, 1/n = one flow has everything. */
function fairness(rates: readonly number[]): number {
  const sum = rates.reduce((a, b) => a + b, 0);
  return sum ** 2 / (rates.length * rates.reduce((a, b) => a + b * b, 0));
}

function expectShared({ rates, longestQueue }: Outcome, longest: number): void {
  expect(rates.reduce((a, b) => a + b, 0)).toBeGreaterThan(0.95 * RATE);
  expect(fairness(rates)).toBeGreaterThan(0.99);
  expect(longestQueue).toBeLessThan(longest);
}

/** The row of a run in the table of test/README.md. */
function row(flows: string, { rates, meanQueue, longestQueue, cnps }: Outcome): string {
  const mbits = (rate: number) => Math.round(rate / 1e6);
  const kilobytes = (bytes: number) => Math.round(bytes / 1000);
  const share = `${mbits(Math.min(...rates))} to ${mbits(Math.max(...rates))}`;
  const total = mbits(rates.reduce((a, b) => a + b, 0));
  const queue = `${kilobytes(meanQueue)} | ${kilobytes(longestQueue)}`;
  return `| ${flows} | ${total} | ${share} | ${fairness(rates).toFixed(3)} | ${queue} | ${cnps} |`;
}

/**
 * The table has the row, and no figure differs by more than a quarter: a change of the card may move figures so far
 * without making the table wrong.
 */
function expectTold(found: string): void {
  const [, flows] = found.split('|');
  const told = readFileSync(new URL('../README.md', import.meta.url), 'utf8')
    .split('\n')
    .find((line) => line.startsWith(`|${flows}|`));
  const figures = (line: string) => [...line.matchAll(/[\d.]+/g)].map(Number);
  const measured = figures(found);
  const isNear = figures(told ?? '').map((figure, i) => Math.abs(figure - (measured[i] as number)) <= figure / 4);
  expect(isNear, `${found} is measured, ${told} is told`).toEqual(measured.map(() => true));
}

describe('a bottleneck of 10 Gbit/s that marks', () => {
  test.each([
    [1, MARK_ALL],
    [2, MARK_ALL],
    [4, MARK_ALL],
    [8, MARK_ALL],
    [16, MARK_ALL],
    [32, 2 * MARK_ALL],
    [64, 3 * MARK_ALL],
  ])('is used and shared fairly by %i flows, and its queue stays short', async (count, longest) => {
    const outcome = await run(count);
    expectShared(outcome, longest);
    expectTold(row(String(count), outcome));
  });

  test.each([1, 4, 16, 64])(
    'is so by %i flows, too, whose peer sends a CNP every 4 us as ConnectX does',
    async (count) => {
      expectShared(await run(count, { cnpInterval: 4_000 }), 3 * MARK_ALL);
    },
  );

  test('leaves a flow with forged CNPs a tenth of the line rate', async () => {
    for (const forgedInterval of [200_000, 20_000]) {
      const { rates } = await run(1, { forgedInterval });
      expect(rates[0]).toBeGreaterThan(0.099 * RATE);
    }
  });

  test('fills its queue with all that the windows allow when congestion control is off', async () => {
    const outcome = await run(4, { enabled: false });
    expect(outcome.cnps).toBe(0);
    expect(outcome.meanQueue).toBeGreaterThan(2 * MARK_ALL);
    expectTold(row('4, without congestion control', outcome));
  });
});
