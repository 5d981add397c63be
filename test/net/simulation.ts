/** One run of a simulation: two cards, some connections, an application at each end and a network between them. */
import { type Impairments, Net } from '../kit/net.js';
import { connectPair } from '../kit/pair.js';
import { Random } from '../kit/random.js';
import type { RigQp } from '../kit/rig.js';
import { Windows } from './memory-windows.js';
import type { Violation } from './model.js';
import { drawOps, MAX_INLINE } from './op.js';
import { Side, SOURCE, type Zones } from './side.js';
import { RECEIVES, Stream } from './stream.js';

export interface Scenario {
  readonly seed: number;
  readonly pairs: number;
  /** Work requests per direction of each connection. */
  readonly ops: number;
  readonly mtu: number;
  readonly ipv6: boolean;
  readonly rdAtomic: number;
  readonly timeout: number;
  readonly retryCnt: number;
  readonly rnrRetry: number;
  readonly minRnrTimer: number;
  readonly late: number;
  /** Largest delay in nanoseconds. Default: 2 ms. */
  readonly lateBy?: number;
  /** Flow control at the first and at the second side. Default: off. */
  readonly flowControl?: readonly [boolean, boolean];
  readonly there: Impairments;
  readonly back: Impairments;
  /** Nanoseconds after which no frame arrives any more; 0 = never. */
  readonly cutAt: number;
  /** Statuses besides SUCCESS with which a stream may end. */
  readonly mayEndWith: readonly string[];
  /** Only the first side sends. */
  readonly oneWay?: boolean;
  /**
   * The network interfaces send GSO bursts and coalesce received packets, at most this many; some compute their part of
   * the ICRC too. 0 = no offload.
   */
  readonly offload?: number;
  /** An illegal request in the first stream. */
  readonly violation?: (random: Random, ops: number) => Violation;
}

export interface Outcome {
  readonly packets: number;
  readonly ended: readonly (string | undefined)[];
  readonly completed: number;
  /** Number of GSO bursts that were judged, and packets that arrived behind another one in a super-packet. */
  readonly runs: number;
  readonly coalesced: number;
  /** RNR NAKs, and messages that waited for credits. */
  readonly refused: number;
  readonly waits: number;
  /** See Windows. */
  readonly windows: Windows['counts'];
}

interface Connection {
  readonly qps: readonly [RigQp, RigQp];
  /** streams[0] goes from the first side to the second. */
  readonly streams: readonly [Stream, Stream];
  readonly windows: readonly [Windows, Windows];
}

/** @throws Error at the first violation of the rules */
export async function simulate(scenario: Scenario): Promise<Outcome> {
  const random = new Random(scenario.seed);
  const sides = [
    await Side.create(1 + (scenario.seed & 127), scenario.pairs, random.fork()),
    await Side.create(128 + (scenario.seed & 127), scenario.pairs, random.fork()),
  ] as const;
  const net = new Net([sides[0].rig, sides[1].rig], random.u32(), 2048);
  net.impair(0, scenario.there);
  net.impair(1, scenario.back);
  if (scenario.offload)
    for (const port of [0, 1]) {
      net.offerGso(port, { packets: scenario.offload, bytes: random.pick([5000, 65507]) });
      net.coalesce(port, scenario.offload);
      if (random.chance(0.5)) net.shareIcrc(port);
    }
  const connections = Array.from({ length: scenario.pairs }, (_, i) => connect(scenario, sides, net, random, i));
  if (scenario.cutAt !== 0) net.wake(net.now + scenario.cutAt);
  const cutAt = scenario.cutAt === 0 ? Number.POSITIVE_INFINITY : net.now + scenario.cutAt;
  net.application = () => {
    if (net.now >= cutAt) {
      net.cut(0);
      net.cut(1);
    }
    let moved = false;
    for (const { qps, streams } of connections) {
      for (const end of [0, 1] as const) moved = poll(qps[end], streams, end) || moved;
      for (const stream of streams) moved = stream.pump() || moved;
    }
    return moved;
  };
  try {
    net.run();
    finish(scenario, connections, sides);
    checkCounters(sides, net);
  } catch (cause) {
    const decisions = sides.map(({ rig }, i) => `\ncard ${i} decided\n${rig.decisions().slice(-20).join('\n')}`);
    throw new Error(
      `${(cause as Error).message} (at ${net.now} ns, ${JSON.stringify(net.counters)})${decisions.join('')}`,
      { cause },
    );
  }
  const streams = connections.flatMap((connection) => connection.streams);
  return {
    packets: net.counters.sent,
    ended: streams.map((stream) => stream.ended),
    completed: streams.reduce((sum, stream) => sum + stream.completed, 0),
    runs: net.counters.gsoBursts,
    coalesced: net.coalesced,
    refused: sum(sides, 'send_rnr_err'),
    waits: sum(sides, 'rc_crwaits'),
    windows: connections
      .flatMap(({ windows }) => windows)
      .reduce(
        (all, { counts }) => ({
          lent: all.lent + counts.lent,
          passed: all.passed + counts.passed,
          closed: all.closed + counts.closed,
        }),
        { lent: 0, passed: 0, closed: 0 },
      ),
  };
}

function sum(sides: readonly Side[], counter: string): number {
  return sides.reduce((all, { rig }) => all + (rig.counters()[counter] ?? 0), 0);
}

function connect(
  scenario: Scenario,
  sides: readonly [Side, Side],
  net: Net,
  random: Random,
  index: number,
): Connection {
  const { mtu, late, mayEndWith } = scenario;
  const sizes = { sendWr: 32, recvWr: 32, sge: 4, inline: MAX_INLINE, signalAll: false, cqe: 256 };
  const [here = false, there = false] = scenario.flowControl ?? [];
  const qps = [
    sides[0].rig.qp({ ...sizes, flowControl: here }),
    sides[1].rig.qp({ ...sizes, flowControl: there }),
  ] as const;
  // half of the connections are about to pass 2^24
  const psn = (): number => (random.chance(0.5) ? 0x1000000 - random.between(1, 200) : random.below(1 << 24));
  connectPair(qps[0], 0, qps[1], 1, { ...scenario, access: 15 | 256, psns: [psn(), psn()] });
  const windows = sides.map((side) => new Windows(side, (side.zones[index] as Zones).written)) as [Windows, Windows];
  const stream = (end: 0 | 1): Stream => {
    const other = end === 0 ? 1 : 0;
    const own = random.fork();
    const count = scenario.oneWay && end === 1 ? 0 : scenario.ops;
    let ops = drawOps(own, count, mtu, SOURCE);
    let violation: Violation | undefined;
    if (end === 0 && index === 0 && scenario.violation) {
      violation = scenario.violation(own, count);
      ops = ops.map((op) => (op.index === violation?.index ? { ...op, ...invalid(violation) } : op));
    }
    return new Stream({
      net,
      random: own,
      index,
      from: sides[end],
      fromQp: qps[end],
      to: sides[other],
      toQp: qps[other],
      ops,
      late,
      lateBy: scenario.lateBy ?? 2_000_000,
      mayEndWith,
      violation,
      own: windows[end],
      theirs: windows[other],
    });
  };
  return { qps, streams: [stream(0), stream(1)], windows };
}

function invalid(violation: Violation): object {
  return { kind: violation.kind, length: violation.length, source: 0, isInline: false, isSignaled: true };
}

/** Polls the queue pair at one end: completions of its own stream's requests, and of the other stream's receives. */
function poll(qp: RigQp, streams: readonly [Stream, Stream], end: 0 | 1): boolean {
  if (qp.rig.x.cqPeek(qp.cq) === 0) return false;
  const [own, other] = end === 0 ? streams : [streams[1], streams[0]];
  for (const wc of qp.poll()) {
    // a flushed receive may have any opcode: its wrId decides
    if (wc.wrId >= RECEIVES) other.onReceive(wc);
    else own.onSend(wc);
  }
  return true;
}

/** Each frame that arrived counts once: as received, or by its reason to be dropped. */
function checkCounters(sides: readonly [Side, Side], net: Net): void {
  let counted = 0;
  for (const { rig } of sides)
    for (const [name, value] of Object.entries(rig.counters()))
      if (name === 'rcvd_pkts' || name.startsWith('drop_')) counted += value;
  if (counted !== net.counters.delivered)
    throw new Error(`${net.counters.delivered} frames were delivered, ${counted} counted`);
}

function finish(scenario: Scenario, connections: readonly Connection[], sides: readonly [Side, Side]): void {
  for (const { qps, streams } of connections) {
    const isWhole = streams.every((stream) => stream.ended === undefined && stream.receiveEnded === undefined);
    for (const stream of streams) {
      stream.checkEnd();
      if (isWhole && !stream.isDone) stream.fail('came to a stop');
    }
    // all pending requests are flushed, in order, and nothing else completes
    for (const end of [0, 1] as const) {
      const { state } = qps[end];
      if (state !== 'RTS' && isWhole) throw new Error(`a queue pair is in ${state}`);
      if (state === 'RTS' && !isWhole) {
        qps[end].modify({ STATE: 6 });
        poll(qps[end], streams, end);
      }
      if (qps[end].attribute('SQ_PENDING') !== 0 || (!isWhole && qps[end].attribute('RQ_PENDING') !== 0))
        throw new Error(`work requests leaked on a queue pair in ${state}`);
    }
    for (const stream of streams) stream.abandon();
  }
  for (const side of sides) {
    if (scenario.mayEndWith.length !== 0) side.accept(side.shared, 8);
    const at = side.difference();
    if (at >= 0)
      throw new Error(
        `byte ${at} of ${side.size} is ${side.actual[at]}, must be ${side.mirror[at]}; zones ${JSON.stringify(side.zones)}`,
      );
  }
}
