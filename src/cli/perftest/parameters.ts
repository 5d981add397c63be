/** The parameters of a test: the tests of perftest with their defaults, and the options of the user. */
import type { WaitOptions } from '../completions.js';
import type { DeviceOptions } from '../device.js';

export interface TestKind {
  readonly name: string;
  /** Name of the stock program. */
  readonly stock: string;
  readonly verb: 'SEND' | 'WRITE' | 'READ' | 'ATOMIC';
  readonly measures: 'bw' | 'lat';
  /** Defaults of the stock program. */
  readonly size: number;
  readonly iters: number;
}

const kind = (verb: TestKind['verb'], measures: TestKind['measures'], size: number, iters = 1000): TestKind => {
  const word = verb.toLowerCase();
  return { name: `${word}-${measures}`, stock: `ib_${word}_${measures}`, verb, measures, size, iters };
};

export const KINDS: readonly TestKind[] = [
  kind('SEND', 'bw', 65_536),
  kind('SEND', 'lat', 2),
  kind('WRITE', 'bw', 65_536, 5000),
  kind('WRITE', 'lat', 2),
  kind('READ', 'bw', 65_536),
  kind('READ', 'lat', 2),
  kind('ATOMIC', 'bw', 8),
  kind('ATOMIC', 'lat', 8),
];

/** The largest size of --all, bytes. */
export const MAX_SIZE_OF_ALL = 2 ** 23;

export interface PerftestOptions extends WaitOptions, DeviceOptions {
  readonly kind: TestKind;
  readonly port: number;
  /** --rdma_cm: exchange parameters and connect the queue pairs by rdma_cm. */
  readonly rdmaCm: boolean;
  /** --comm_rdma_cm: exchange parameters by rdma_cm, and connect the queue pairs as with TCP. */
  readonly commRdmaCm?: boolean;
  readonly transport: 'RC' | 'UC' | 'UD';
  /** Message size, bytes; with `all` the largest. */
  readonly size: number;
  /** The user has given the size, so that it must not be reduced. */
  readonly isSizeGiven?: boolean;
  /** Run with all powers of two from 2 to `size`. */
  readonly all: boolean;
  /** Messages per queue pair; Infinity if the time or the user ends the test. */
  readonly iters: number;
  /** End a run this many milliseconds after its first message is done, whatever is in flight; 0 = go by `iters`. */
  readonly durationMs: number;
  /** --run_infinitely: a run ends when it is stopped. */
  readonly runInfinitely?: RunInfinitely;
  readonly txDepth: number;
  /** Receives kept posted per queue pair. */
  readonly rxDepth: number;
  /** Use one shared receive queue for all queue pairs. */
  readonly useSrq?: boolean;
  readonly qps: number;
  /** Messages posted by one call. */
  readonly postList: number;
  readonly bidirectional: boolean;
  /** WRITE with immediate data, which consumes a receive. */
  readonly immediate: boolean;
  readonly atomic: 'CMP_AND_SWAP' | 'FETCH_AND_ADD';
  /** Path MTU, bytes. Default: the largest that both ends support. */
  readonly mtu?: number;
  readonly gidIndex?: number;
  /** Traffic class of the IP headers, 0 to 255. */
  readonly trafficClass: number;
  readonly timeout: number;
  readonly retryCnt: number;
  readonly gigabits: boolean;
  /** Fail a bandwidth test whose average is lower, in the unit of the report. */
  readonly limitBandwidth?: number;
  /** Fail a bandwidth test whose rate is lower, in millions of messages per second. */
  readonly limitMsgRate?: number;
  /** READs and atomics in flight per queue pair. Default: 16. */
  readonly outs?: number;
  /** Post messages up to this many bytes inline. Default: none. */
  readonly inline?: number;
  /** Request a completion for every nth message. Default: 1. */
  readonly cqMod?: number;
  /** Do not measure the peak. */
  readonly noPeak?: boolean;
  /** Print the times of all messages: in order of completion, and shortest first. */
  readonly unsorted?: boolean;
  readonly histogram?: boolean;
}

export interface RunInfinitely {
  /** Interval of the reports, milliseconds. */
  readonly intervalMs: number;
  /** Called at the start of a run with the function that ends it. */
  readonly onStop: (stop: () => void) => void;
}

/** Whether the two ends exchange parameters by rdma_cm instead of TCP. */
export function communicatesByCm({ rdmaCm, commRdmaCm }: PerftestOptions): boolean {
  return rdmaCm || commRdmaCm === true;
}

/** Whether messages consume receives of the peer. */
export function takesReceives({ kind: { verb }, immediate }: PerftestOptions): boolean {
  return verb === 'SEND' || immediate;
}

/** The message size, bytes. A datagram holds at most the path MTU. */
export function messageSize({ transport, size }: PerftestOptions, mtu: number): number {
  return transport === 'UD' ? Math.min(size, mtu) : size;
}

/** Whether the messages are READs or atomics, of which the responder's resources limit the number in flight. */
export function isReadOrAtomic({ verb }: TestKind): boolean {
  return verb === 'READ' || verb === 'ATOMIC';
}
