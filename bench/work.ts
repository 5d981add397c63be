/** What is measured, and what comes out: the words that all of this folder shares. */

export type Operation = 'WRITE' | 'READ' | 'SEND';

/** One thing to be done between two ends for a while. */
export interface Work {
  /** `bulk` and `rate`: one way, several messages in flight. `pingpong`: one message, to and fro. */
  readonly kind: 'bulk' | 'rate' | 'pingpong';
  /** What RDMA does it with; the others have only sending. */
  readonly operation: Operation;
  /** Bytes of a message. */
  readonly size: number;
  /** Of the interfaces, bytes. */
  readonly mtu: number;
  readonly qps: number;
  /** How both ends wait: looking again and again, or in the event loop (in the kernel). */
  readonly waiting: 'spin' | 'sleep';
  /** Before it is measured, and while it is. */
  readonly warmMs: number;
  readonly ms: number;
}

/** Microseconds of a round trip. */
export interface Latency {
  readonly count: number;
  readonly min: number;
  readonly median: number;
  readonly p90: number;
  readonly p99: number;
  readonly p999: number;
  readonly max: number;
}

/** What passed while it was measured. */
export interface Window {
  readonly messages: number;
  readonly seconds: number;
  /** Frames that one end sent and received, where that is known. */
  readonly frames?: number;
}

/** What one end says of its part. Exactly one of the ends has the window, or the latency. */
export interface Part {
  readonly window?: Window;
  readonly latency?: Latency;
  /** Messages of the whole run, warm-up included, where this end knows. */
  readonly messages?: number;
  /** User and system time of this end in the whole run, seconds. */
  readonly cpu: number;
}

/** One measurement of one contender. */
export interface Sample {
  readonly messagesPerSecond: number;
  readonly gbps: number;
  readonly framesPerSecond?: number;
  readonly latency?: Latency;
  /** CPU time of both ends for each byte and each message, ns. */
  readonly cpuPerByte: number;
  readonly cpuPerMessage: number;
}

/** Both ends' parts as one. @throws Error when neither end has measured anything */
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
