/** What a queue pair is made from. */
import type { Cq } from './cq.js';
import type { QuirkName } from './quirks.js';
import type { Srq } from './srq.js';

export interface QpOptions {
  /** Reliable connection, unreliable connection, or unreliable datagrams. Default `RC`. */
  readonly type?: 'RC' | 'UC' | 'UD';
  /** Where send completions go. */
  readonly sendCq: Cq;
  /** Where receive completions go. Default: `sendCq`. */
  readonly recvCq?: Cq;
  /** Work requests that the send queue holds, 1..32768. Default 64. */
  readonly maxSendWr?: number;
  /** Receives come from here; without it the queue pair has a receive queue of its own. */
  readonly srq?: Srq;
  /** Work requests that the receive queue holds, 1..32768. Default 64. */
  readonly maxRecvWr?: number;
  /** Pieces of a send work request, 1..32. Default 4. */
  readonly maxSendSge?: number;
  /** Pieces of a receive work request, 1..32. Default 4. */
  readonly maxRecvSge?: number;
  /** Bytes that a request may carry inline, 0..1024. Default 64. */
  readonly maxInlineData?: number;
  /** Habits of the peer's that break the rules, to be shared. Default: none. */
  readonly quirks?: readonly QuirkName[];
  /** Every send completes; otherwise only those with `signaled`, and those that fail. Default true. */
  readonly sqSigAll?: boolean;
}
