/** Asynchronous events (ibv_async_event): what happens to an object without a completion. */
import type { Device } from './context.js';
import type { Cq } from './cq.js';
import type { Qp } from './qp.js';
import type { Srq } from './srq.js';

/** What the verbs' objects emit, with the listeners' arguments. */
export interface ResourceEvents {
  /** An asynchronous event, at the device and at the object it is about. */
  event: [event: AsyncEvent];
  /** At a completion queue, once after `arm`. */
  completion: [];
  /** At a device, when it is closed. */
  close: [];
}

/**
 * - `CQ_ERR`: the completion queue overran.
 * - `QP_FATAL`: the queue pair failed and is in ERR.
 * - `QP_REQ_ERR`: the peer sent an invalid request; ERR.
 * - `QP_ACCESS_ERR`: the peer tried what it has no right to; ERR.
 * - `COMM_EST`: the first packet came while still in RTR.
 * - `SQ_DRAINED`: the send queue is at rest after a move to SQD.
 * - `QP_LAST_WQE_REACHED`: the queue pair is in ERR and takes no more receives from its shared queue.
 * - `SRQ_LIMIT_REACHED`: fewer receives than `srqLimit` are left. Comes once for each time that the limit is set.
 * - `PORT_ERR`, `PORT_ACTIVE`: the interface went down or came up. Queue pairs stay as they are; they retry.
 * - `GID_CHANGE`: `device.gids` is another: the interface lost or got an address. What stays keeps its order, but not its
 *   index when one before it went.
 * - `DEVICE_FATAL`: the thread that ran the card in worker mode has ended by an error. Nothing works any more but `close`;
 *   who waits for something is told.
 */
export type AsyncEvent =
  | { readonly type: 'CQ_ERR'; readonly cq: Cq }
  | { readonly type: 'SRQ_LIMIT_REACHED'; readonly srq: Srq }
  | { readonly type: 'PORT_ACTIVE' | 'PORT_ERR' | 'GID_CHANGE'; readonly device: Device; readonly portNum: 1 }
  | { readonly type: 'DEVICE_FATAL'; readonly device: Device; readonly reason: string }
  | {
      readonly type: 'QP_FATAL' | 'QP_REQ_ERR' | 'QP_ACCESS_ERR' | 'COMM_EST' | 'SQ_DRAINED' | 'QP_LAST_WQE_REACHED';
      readonly qp: Qp;
    };
