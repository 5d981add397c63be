/** What is measured: the tests of perftest, their defaults, and what a user has chosen. */
import type { WaitOptions } from '../completions.js';
import type { DeviceChoice } from '../device.js';

export interface Kind {
  readonly name: string;
  /** What the stock program is called. */
  readonly stock: string;
  readonly verb: 'SEND' | 'WRITE' | 'READ' | 'ATOMIC';
  readonly measures: 'bw' | 'lat';
  /** Defaults of the stock program. */
  readonly size: number;
  readonly iters: number;
}

const kind = (verb: Kind['verb'], measures: Kind['measures'], size: number, iters = 1000): Kind => {
  const word = verb.toLowerCase();
  return { name: `${word}-${measures}`, stock: `ib_${word}_${measures}`, verb, measures, size, iters };
};

export const KINDS: readonly Kind[] = [
  kind('SEND', 'bw', 65_536),
  kind('SEND', 'lat', 2),
  kind('WRITE', 'bw', 65_536, 5000),
  kind('WRITE', 'lat', 2),
  kind('READ', 'bw', 65_536),
  kind('READ', 'lat', 2),
  kind('ATOMIC', 'bw', 8),
  kind('ATOMIC', 'lat', 8),
];

/** The largest size of -a: 2^23. */
export const LARGEST_OF_ALL = 2 ** 23;

export interface PerftestOptions extends WaitOptions, DeviceChoice {
  readonly kind: Kind;
  readonly port: number;
  /** The two ends meet, and their queue pairs are connected, by rdma_cm. */
  readonly rdmaCm: boolean;
  /** The two ends meet by rdma_cm, and connect their queue pairs by what they tell each other, as over TCP. */
  readonly cmControl?: boolean;
  readonly transport: 'RC' | 'UC' | 'UD';
  /** Bytes of a message; with `all` of the largest. */
  readonly size: number;
  /** It is the user's own: no other one will do. */
  readonly sizeIsGiven?: boolean;
  /** All powers of two from 2 on. */
  readonly all: boolean;
  /** Messages of each queue pair; Infinity where time or a user ends the test. */
  readonly iters: number;
  /** A run ends so many milliseconds after its first message is known to be done, whatever is on the way; 0 = not. */
  readonly durationMs: number;
  /** A run ends when it is stopped. */
  readonly endless?: Endless;
  readonly txDepth: number;
  /** Receives of each queue pair that are posted at a time. */
  readonly rxDepth: number;
  /** All queue pairs take them from one shared receive queue. */
  readonly sharesReceives?: boolean;
  readonly qps: number;
  /** Messages that one call posts. */
  readonly postList: number;
  readonly bidirectional: boolean;
  /** WRITE bears an immediate and takes a receive. */
  readonly immediate: boolean;
  readonly atomic: 'CMP_AND_SWAP' | 'FETCH_AND_ADD';
  /** Path MTU in bytes; without it the most that both ends carry. */
  readonly mtu?: number;
  readonly gidIndex?: number;
  /** Of the IP headers, 0 to 255. */
  readonly trafficClass: number;
  readonly timeout: number;
  readonly retryCnt: number;
  readonly gigabits: boolean;
  /** A test of bandwidth has failed when it has less, in the unit that it is told in. */
  readonly leastBandwidth?: number;
  /** Or fewer millions of messages a second. */
  readonly leastRate?: number;
  /** READs and atomics that either end has on the way; default 16. */
  readonly outs?: number;
  /** Messages up to so many bytes are posted inline; default none. */
  readonly inline?: number;
  /** Every so many messages one completes; default all. */
  readonly cqMod?: number;
  /** The best part of a run is not looked for. */
  readonly noPeak?: boolean;
  /** The times of all messages are told: as they came, and from the shortest to the longest. */
  readonly unsorted?: boolean;
  readonly histogram?: boolean;
}

export interface Endless {
  /** How often the bandwidth is told, milliseconds. */
  readonly intervalMs: number;
  /** Is told once a run has begun how to end it. */
  readonly onStop: (stop: () => void) => void;
}

/** How the two ends meet. */
export function meetsByCm({ rdmaCm, cmControl }: PerftestOptions): boolean {
  return rdmaCm || cmControl === true;
}

/** Messages take receives at the other end. */
export function takesReceives({ kind: { verb }, immediate }: PerftestOptions): boolean {
  return verb === 'SEND' || immediate;
}

/** Bytes of a message: a datagram holds no more than the path MTU. */
export function sizeWithin({ transport, size }: PerftestOptions, mtu: number): number {
  return transport === 'UD' ? Math.min(size, mtu) : size;
}

/** Its messages are answered by the peer's card, which has room for so many at a time. */
export function answersReads({ verb }: Kind): boolean {
  return verb === 'READ' || verb === 'ATOMIC';
}
