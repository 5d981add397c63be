/** Asynchronous events (ibv_async_event): events of objects that are not completions. */
import type { Context } from './context.js';
import type { CqEvent } from './cq.js';
import type { QpEvent } from './qp.js';
import type { SrqEvent } from './srq.js';

/** Events that a device emits, with the arguments of their listeners. */
export interface DeviceEvents {
  /** An asynchronous event of the device or of one of its objects, which emits it as well. */
  event: [event: AsyncEvent];
  /** Emitted when the device is closed. */
  close: [];
}

/** A change of the port, or of its addresses. */
export interface PortEvent {
  /** Kind of the event. */
  readonly type: 'PORT_ACTIVE' | 'PORT_ERR' | 'GID_CHANGE';
  /** The device concerned. */
  readonly device: Context;
  /** Port number: 1. */
  readonly portNum: 1;
}

/** The failure of a device. */
export interface DeviceFatalEvent {
  /** Always `DEVICE_FATAL`. */
  readonly type: 'DEVICE_FATAL';
  /** The device concerned. */
  readonly device: Context;
  /** The reason for the failure of the device. */
  readonly reason: string;
}

/**
 * An asynchronous event (ibv_get_async_event); `type` tells the kind.
 * - `CQ_ERR`: the completion queue overran.
 * - `QP_FATAL`: the queue pair failed and went to ERR.
 * - `QP_REQ_ERR`: the peer sent an invalid request; the queue pair went to ERR.
 * - `QP_ACCESS_ERR`: the peer violated access rights; the queue pair went to ERR.
 * - `COMM_EST`: the first packet arrived while the queue pair was in RTR.
 * - `SQ_DRAINED`: the send queue is drained after a move to SQD.
 * - `QP_LAST_WQE_REACHED`: the queue pair is in ERR and consumes no more receives of its shared receive queue.
 * - `QP_NO_RECEIVE`: a message of the peer has waited for a receive for a second (RNR NAK). Not of ibverbs.
 * - `QP_ICRC_ERR`: eight packets have arrived, and none with the right ICRC. Not of ibverbs.
 * - `SRQ_LIMIT_REACHED`: fewer than `srqLimit` receives are left. Reported once each time the limit is set.
 * - `PORT_ERR`, `PORT_ACTIVE`: the interface went down or came up. Queue pairs keep their state and retry.
 * - `GID_CHANGE`: `device.gids` has changed, because the interface lost or got an address. Remaining entries keep their
 *   order, but not their index if an entry before them was removed.
 * - `DEVICE_FATAL`: the thread that runs the card in worker mode has failed. Only `close` works from then on; pending
 *   calls are rejected.
 */
export type AsyncEvent = CqEvent | SrqEvent | QpEvent | PortEvent | DeviceFatalEvent;
