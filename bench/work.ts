/** Measurements and their results: the types that all parts of this folder share. */

export type Operation = 'WRITE' | 'READ' | 'SEND';

/** `Work.warmBytes` of large transfers: more than the freed pages that Linux keeps for a CPU (README.md, Method). */
export const WARM_BYTES = 2 ** 28;

/** One kind of traffic between two ends for some time. */
export interface Work {
  /** `bulk` and `rate`: one direction, several messages in flight. `pingpong`: round trips of one message. */
  readonly kind: 'bulk' | 'rate' | 'pingpong';
  /** The RDMA operation. Other contenders support SEND only. */
  readonly operation: Operation;
  /** Bytes of a message. */
  readonly size: number;
  /** MTU of the interfaces in bytes. */
  readonly mtu: number;
  readonly qps: number;
  /** The way in which both ends wait: by polling, or asleep in the event loop (C programs: in the kernel). */
  readonly waiting: 'spin' | 'sleep';
  /** Milliseconds of the warm-up, and of the measurement. */
  readonly warmMs: number;
  readonly ms: number;
  /** Bytes that the warm-up moves besides, unless that takes a second longer. Default: none. */
  readonly warmBytes?: number;
}

/** Round-trip times in microseconds. */
export interface Latency {
  readonly count: number;
  readonly min: number;
  readonly median: number;
  readonly p90: number;
  readonly p99: number;
  readonly p999: number;
  readonly max: number;
}

/** The traffic during the measurement. */
export interface Window {
  readonly messages: number;
  readonly seconds: number;
  /** Frames that one end sent and received, if known. */
  readonly frames?: number;
}

/** The result of one end. Exactly one of the ends has the window, or the latency. */
export interface Part {
  readonly window?: Window;
  readonly latency?: Latency;
  /** Messages of the whole run including the warm-up, if this end knows them. */
  readonly messages?: number;
  /** User and system time of this end over the whole run, in seconds. */
  readonly cpu: number;
}

/** One measurement of one contender. */
export interface Sample {
  readonly messagesPerSecond: number;
  readonly gbps: number;
  readonly framesPerSecond?: number;
  readonly latency?: Latency;
  /** CPU time of both ends per byte and per message, in ns, if known. */
  readonly cpuPerByte?: number;
  readonly cpuPerMessage?: number;
}

/** Combines the results of both ends. @throws Error when neither end has measured anything */
export function sampleOf({ size }: Work, parts: readonly Part[]): Sample {
  const window = parts.find((part) => part.window)?.window;
  const latency = parts.find((part) => part.latency)?.latency;
  if (!window && !latency?.count) throw new Error('nothing got through');
  if (window && !(window.messages > 0)) throw new Error('nothing got through while it was measured');
  const messages = parts.find((part) => part.messages !== undefined)?.messages ?? 0;
  const cpu = parts.reduce((sum, part) => sum + part.cpu, 0);
  const rate = window ? window.messages / window.seconds : 1e6 / (latency?.median ?? 1);
  return {
    messagesPerSecond: rate,
    gbps: (rate * size * 8) / 1e9,
    ...(window?.frames !== undefined && { framesPerSecond: window.frames / window.seconds }),
    ...(latency && { latency }),
    cpuPerByte: (cpu * 1e9) / (messages * size),
    cpuPerMessage: (cpu * 1e9) / messages,
  };
}
