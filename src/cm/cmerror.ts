/** Errors of connections: a failed attempt, or the end of a connection. */
import { type ErrorCode, VerbsError } from '../errors.js';
import type { CoreEvent } from './core/events.js';
import { NO_DATA } from './core/messages.js';
import {
  RejectReason,
  type RejectReasonName,
  rejectReasonName,
  type SidrStatusName,
  sidrStatusName,
} from './core/reasons.js';

/**
 * Error of `connect` and `accept`, and of events: the event that arrived instead of ESTABLISHED, or that ended the
 * connection. `code` is ECONNREFUSED (rejected), ETIMEDOUT (no reply), ECONNRESET (disconnected, or the client has
 * given up its request) or EHOSTUNREACH.
 * @example
 * try {
 *   await id.connect();
 * } catch (error) {
 *   if (error instanceof CmError && error.reason === 'INVALID_SERVICE_ID') console.log('no listener on that port');
 * }
 */
export class CmError extends VerbsError {
  constructor(
    code: ErrorCode,
    message: string,
    /** Name of the event (RDMA_CM_EVENT_*). */
    readonly event: 'REJECTED' | 'UNREACHABLE' | 'CONNECT_ERROR' | 'DISCONNECTED',
    /** Reason of the peer's REJ or status of its SIDR_REP, by name; undefined when there was none. */
    readonly reason?: RejectReasonName | SidrStatusName | `${number}`,
    /** Private data of the peer's message, padded with zeroes. */
    readonly privateData: Uint8Array = NO_DATA,
    options?: ErrorOptions,
  ) {
    super(code, message, options);
  }
}

/** Explanations of common reasons, for messages. */
const EXPLANATIONS = new Map<number, string>([
  [RejectReason.INVALID_SERVICE_ID, 'no listener on that port'],
  [RejectReason.CONSUMER_DEFINED, 'the application rejected it'],
  [RejectReason.STALE_CONNECTION, 'an earlier connection of this queue pair has not ended there yet'],
  [RejectReason.NO_RESOURCES, 'it has no memory, or no place in its backlog, for another connection'],
  [RejectReason.INVALID_MTU, 'the path MTU exceeds its maximum'],
  [RejectReason.INVALID_TRANSPORT_TYPE, 'its listener has another type of queue pair'],
  [RejectReason.TIMEOUT, 'it received no reply from us in time'],
]);

/** Returns the error of a REJECTED event. @param peer address and port, for the message */
export function rejectedError(peer: string, code: number, privateData: Uint8Array): CmError {
  const reason = rejectReasonName(code);
  const explanation = EXPLANATIONS.get(code);
  const why = explanation === undefined ? '' : `${explanation}, `;
  const text = `${peer} refused the connection: ${why}reason ${code} (${reason})`;
  return new CmError('ECONNREFUSED', text, 'REJECTED', reason, privateData);
}

/** Returns the error of a REJECTED event at the passive end: the client has given up its request. */
export function abandonedError(peer: string, code: number, privateData: Uint8Array): CmError {
  const reason = rejectReasonName(code);
  const what = code === RejectReason.NO_RESOURCES ? 'has made room for another client' : 'has given up';
  return new CmError('ECONNRESET', `${peer} ${what}: reason ${code} (${reason})`, 'REJECTED', reason, privateData);
}

/** Returns the error of an UNREACHABLE event. */
export function unreachableError(peer: string, event: Extract<CoreEvent, { type: 'UNREACHABLE' }>): CmError {
  const { status, privateData, icmpError } = event;
  if (icmpError === 'ECONNREFUSED') {
    const text = `${peer} refused the connection: no RoCE device has UDP port 4791 there (ICMP "port unreachable")`;
    return new CmError('ECONNREFUSED', text, 'UNREACHABLE');
  }
  if (icmpError !== undefined) {
    const why = icmpError === 'EACCES' ? 'a firewall forbids it' : 'no host has answered, or a router has no route';
    return new CmError('EHOSTUNREACH', `${peer} cannot be reached: ${why} (ICMP, ${icmpError})`, 'UNREACHABLE');
  }
  if (status === 0) return new CmError('ETIMEDOUT', `${peer} did not answer`, 'UNREACHABLE');
  const reason = sidrStatusName(status);
  const explanation = status === 1 ? 'no listener on that port, ' : '';
  const text = `${peer} has no such datagram service: ${explanation}status ${status} (${reason})`;
  return new CmError('ECONNREFUSED', text, 'UNREACHABLE', reason, privateData);
}

/**
 * Returns the error of a DISCONNECTED event.
 * @param code reason of the REJ that ended the connection; undefined: a DREQ
 */
export function disconnectedError(peer: string, code: number | undefined, privateData: Uint8Array): CmError {
  if (code === undefined)
    return new CmError('ECONNRESET', `${peer} ended the connection`, 'DISCONNECTED', undefined, privateData);
  const reason = rejectReasonName(code);
  const why =
    code === RejectReason.STALE_CONNECTION
      ? 'it uses the queue pair for another one, as after a restart'
      : `reason ${code} (${reason})`;
  return new CmError(
    'ECONNRESET',
    `${peer} no longer knows the connection: ${why}`,
    'DISCONNECTED',
    reason,
    privateData,
  );
}
