/** Why a connection did not come about, or came to its end. */
import { type ErrorCode, VerbsError } from '../errors.js';
import {
  RejectReason,
  type RejectReasonName,
  rejectReasonName,
  type SidrStatusName,
  sidrStatusName,
} from './reasons.js';

/** What the event says that came instead of the one that was waited for. */
export class CmError extends VerbsError {
  constructor(
    code: ErrorCode,
    message: string,
    /** Name of the event. */
    readonly event: 'REJECTED' | 'UNREACHABLE' | 'CONNECT_ERROR' | 'DISCONNECTED',
    /** Why the peer refused, where it did: a REJ's reason, or a SIDR_REP's status. */
    readonly reason?: RejectReasonName | SidrStatusName | `${number}`,
    /** What the peer sent along, padded with zeroes. */
    readonly privateData: Uint8Array = new Uint8Array(0),
    options?: ErrorOptions,
  ) {
    super(code, message, options);
  }
}

/** Reasons that a reader need not look up. */
const WORDS = new Map<number, string>([
  [RejectReason.INVALID_SERVICE_ID, 'nobody listens there'],
  [RejectReason.CONSUMER_DEFINED, 'its program said no'],
  [RejectReason.STALE_CONNECTION, 'it has not forgotten an earlier connection of this queue pair yet'],
  [RejectReason.NO_RESOURCES, 'too many requests are waiting for its program'],
  [RejectReason.INVALID_MTU, 'the path MTU is more than it can'],
  [RejectReason.INVALID_TRANSPORT_TYPE, 'it listens for another type of queue pair'],
  [RejectReason.TIMEOUT, 'it has waited in vain for an answer of ours'],
]);

/** @param peer its address and port, for the message */
export function rejected(peer: string, code: number, privateData: Uint8Array): CmError {
  const reason = rejectReasonName(code);
  const words = WORDS.get(code);
  const what = `${peer} refused the connection: ${words === undefined ? '' : `${words}, `}reason ${code} (${reason})`;
  return new CmError('ECONNREFUSED', what, 'REJECTED', reason, privateData);
}

/** @param status of the SIDR_REP; 0 = there was none @param what was asked in vain */
export function unreachable(peer: string, status: number, privateData: Uint8Array): CmError {
  if (status === 0) return new CmError('ETIMEDOUT', `${peer} did not answer`, 'UNREACHABLE');
  const reason = sidrStatusName(status);
  const words = status === 1 ? 'nobody listens there, ' : '';
  const what = `${peer} has no such datagram service: ${words}status ${status} (${reason})`;
  return new CmError('ECONNREFUSED', what, 'UNREACHABLE', reason, privateData);
}

/** The peer has ended the connection. @param code of its REJ, if it was no farewell; STALE_CONNECTION = it has forgotten us */
export function disconnected(peer: string, code: number | undefined, privateData: Uint8Array): CmError {
  if (code === undefined)
    return new CmError('ECONNRESET', `${peer} ended the connection`, 'DISCONNECTED', undefined, privateData);
  const reason = rejectReasonName(code);
  const why =
    code === RejectReason.STALE_CONNECTION
      ? 'it uses its queue pair for another, as after a restart'
      : `reason ${code} (${reason})`;
  return new CmError('ECONNRESET', `${peer} knows the connection no more: ${why}`, 'DISCONNECTED', reason, privateData);
}
