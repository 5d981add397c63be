/** Options of queue pairs, and the quirks of peers that they accommodate. */

import { anything, type Checks, checkBoolean, checkFlags, integer } from '../../base/options.js';
import { LIMITS, Quirk } from '../../device/codes.js';
import type { Cq } from './cq.js';
import type { Srq } from './srq.js';

/** Options of `pd.createQp` (ibv_qp_init_attr). */
export interface QpOptions {
  /** Reliable connection (RC), unreliable connection (UC) or unreliable datagram (UD). Default `RC`. */
  readonly type?: 'RC' | 'UC' | 'UD';
  /** Completion queue of sends. */
  readonly sendCq: Cq;
  /** Completion queue of receives. Default: `sendCq`. */
  readonly recvCq?: Cq;
  /** Work requests that the send queue holds, 1..32768. Default 64. */
  readonly maxSendWr?: number;
  /** Shared receive queue. Default: none, the queue pair has a receive queue of its own. */
  readonly srq?: Srq;
  /** Work requests that the receive queue holds, 1..32768. Default 64. */
  readonly maxRecvWr?: number;
  /** Scatter/gather elements per send work request, 1..32. Default 4. */
  readonly maxSendSge?: number;
  /** Scatter/gather elements per receive work request, 1..32. Default 4. */
  readonly maxRecvSge?: number;
  /** Bytes of inline data per send work request, 0..1024. Default 64. */
  readonly maxInlineData?: number;
  /** Deviations of the peer from the specification to accommodate. Default: none. */
  readonly quirks?: readonly QuirkName[];
  /** Whether every send generates a completion; otherwise only failed sends and those with `signaled`. Default true. */
  readonly sqSigAll?: boolean;
}

/** Their checks. The queue pair checks the objects, and the names of type and quirks. */
export const QP_CHECKS: Checks<QpOptions> = {
  type: anything,
  sendCq: anything,
  recvCq: anything,
  srq: anything,
  maxSendWr: integer(1, LIMITS.maxWr),
  maxRecvWr: integer(1, LIMITS.maxWr),
  maxSendSge: integer(1, LIMITS.maxSge),
  maxRecvSge: integer(1, LIMITS.maxSge),
  maxInlineData: integer(0, LIMITS.maxInline),
  quirks: anything,
  sqSigAll: checkBoolean,
};

/**
 * Name of a quirk of a peer, see `QpOptions.quirks`.
 *
 * For Linux rxe, at least 6.12:
 * - `rxeFlushIcrc`: rxe computes a wrong ICRC for FLUSH. The queue pair sends its FLUSHes with that ICRC, and accepts
 *   both.
 * - `rxeFlushAddress`: rxe retransmits a FLUSH with address 0. The queue pair treats such a FLUSH as one of the whole
 *   region, whose key must still have the right.
 *
 * For some adapters:
 * - `migReqZero`: sends packets with MigReq 0 instead of 1. Received packets are accepted with either value.
 */
export type QuirkName = 'rxeFlushIcrc' | 'rxeFlushAddress' | 'migReqZero';

const QUIRKS: Readonly<Record<QuirkName, number>> = {
  rxeFlushIcrc: Quirk.RXE_FLUSH_ICRC,
  rxeFlushAddress: Quirk.RXE_FLUSH_ADDRESS,
  migReqZero: Quirk.MIG_REQ_ZERO,
};

/** Returns the bits of quirk names. @throws TypeError for an unknown name */
export function quirkBits(names: readonly QuirkName[]): number {
  return checkFlags('quirks', names, QUIRKS);
}
