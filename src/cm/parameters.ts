/** Parameters of `connect` and `accept` (rdma_conn_param): checks and defaults. */

import {
  anything,
  type Checks,
  checkBoolean,
  checkInteger,
  checkOptions,
  checkU32,
  integer,
  nested,
  wrongType,
} from '../base/options.js';
import { LIMITS } from '../device/codes.js';
import { invalidValue, outOfRange } from '../errors.js';
import type { Qp } from '../verbs/objects/qp.js';
import type { Ece } from './core/ece.js';
import { NO_DATA, privateDataBytes } from './core/messages.js';
import { RejectReason } from './core/reasons.js';

/** Parameters of `connect` and `accept` (rdma_conn_param). All are optional. */
export interface ConnParam {
  /**
   * Private data for the peer: `connect` sends at most 56 bytes, `accept` 196; for datagram services 180 and 136. The
   * peer receives it padded with zeroes to that length.
   */
  readonly privateData?: Uint8Array;
  /**
   * READs and atomics of the peer that we serve at a time, 0..128. Default: in `connect` 16, which every adapter can,
   * in `accept` what the peer asks for. `connect` offers 16 when a server refuses more, see `CmId.connect`.
   */
  readonly responderResources?: number;
  /**
   * READs and atomics that we have outstanding, 0..128. Default: in `connect` 16, in `accept` what the peer serves.
   * `connect` offers 16 when a server refuses more.
   */
  readonly initiatorDepth?: number;
  /**
   * End-to-end credits, see `Qp.flowControl`. A client uses them only when the server agrees. Default: the value of the
   * id's queue pair; in `accept` true also when the client asks for credits.
   */
  readonly flowControl?: boolean;
  /**
   * Retries after timeouts and sequence errors, 0..7. `connect`: at both ends, default 7. `accept`: at our end, default
   * what the client asks for. `Infinity` = without limit at our end; the peer of `connect` is told 7.
   */
  readonly retryCnt?: number;
  /** Retries of the **peer** when we have no receive posted, 0..7; 7: without end. Default 7. */
  readonly rnrRetry?: number;
  /** Number of the application's queue pair, 24 bits; required when the id has no queue pair. */
  readonly qpNum?: number;
  /** The application's queue pair has a shared receive queue; for an id without a queue pair. Default false. */
  readonly srq?: boolean;
  /** Q_Key of a datagram service, 32 bits; `accept` only. Default `UDP_QKEY`. */
  readonly qkey?: number;
  /**
   * Vendor options of enhanced connection establishment (rdma_set_local_ece). A server that answers with the client's
   * own, `request.ece`, agrees to all of them. This card implements none, so the default is none; adapters then connect
   * without. A server that insists rejects with `VENDOR_OPTION_NOT_SUPPORTED` (rdma_reject_ece).
   */
  readonly ece?: Ece;
}

/** The names of the parameters; `checkConnParam` checks the values. */
const CHECKS: Checks<ConnParam> = {
  privateData: anything,
  responderResources: anything,
  initiatorDepth: anything,
  flowControl: anything,
  retryCnt: anything,
  rnrRetry: anything,
  qpNum: anything,
  srq: anything,
  qkey: anything,
  ece: nested({ vendorId: integer(0, 0xffffff), options: integer(0, 0xffffffff) }),
};

/** Q_Key of rdma_cm's datagram services and multicast groups (RDMA_UDP_QKEY). */
export const UDP_QKEY = 0x01234567;

/**
 * READs and atomics of each direction that `connect` asks for. Adapters have 16 or more, and librdmacm refuses to
 * accept more than its device has: a server that accepts with the parameters of the REQ would fail.
 */
const CONNECT_DEPTH = 16;

/** Values of `connect` and `resolveService` when the application gives none. */
export const CONNECT_DEFAULTS = {
  responderResources: CONNECT_DEPTH,
  initiatorDepth: CONNECT_DEPTH,
  flowControl: false,
  retryCnt: 7,
} as const;

/** Checked parameters, with all defaults applied. */
export interface CheckedConnParam {
  readonly privateData: Uint8Array;
  readonly responderResources: number;
  readonly initiatorDepth: number;
  readonly flowControl: boolean;
  readonly retryCnt: number;
  readonly rnrRetry: number;
  readonly qpNum: number;
  readonly srq: boolean;
  readonly qkey: number;
  readonly ece?: Ece;
}

/** Maximum private data of each call in bytes, without the rdma_cm header. */
export const PRIVATE_DATA_BYTES = {
  connect: privateDataBytes('REQ') - 36,
  accept: privateDataBytes('REP'),
  reject: privateDataBytes('REJ'),
  disconnect: privateDataBytes('DREQ'),
  resolveService: privateDataBytes('SIDR_REQ') - 36,
  acceptService: privateDataBytes('SIDR_REP'),
} as const;

/**
 * Checks parameters and applies defaults.
 * @param message the call, which limits the private data
 * @param defaults depths, credits and retries: `CONNECT_DEFAULTS`, or what the peer asks for
 * @throws TypeError, RangeError
 */
export function checkConnParam(
  param: ConnParam,
  qp: Qp | undefined,
  message: keyof typeof PRIVATE_DATA_BYTES,
  defaults: Pick<Required<ConnParam>, 'responderResources' | 'initiatorDepth' | 'flowControl' | 'retryCnt'>,
): CheckedConnParam {
  checkOptions(message, param, CHECKS);
  const depth = (name: 'responderResources' | 'initiatorDepth') =>
    checkInteger(name, param[name] ?? Math.min(defaults[name], LIMITS.maxRdAtomic), 0, LIMITS.maxRdAtomic);
  const wantsCredits = qp?.type === 'RC' && (qp.flowControl || defaults.flowControl);
  if (qp !== undefined && param.qpNum !== undefined && param.qpNum !== qp.qpNum)
    throw invalidValue(`qpNum is ${param.qpNum}, but the id has ${qp}`);
  return {
    privateData: checkPrivateData(param.privateData, PRIVATE_DATA_BYTES[message]),
    responderResources: depth('responderResources'),
    initiatorDepth: depth('initiatorDepth'),
    flowControl: checkBoolean('flowControl', param.flowControl ?? wantsCredits),
    retryCnt: checkRetries('retryCnt', param.retryCnt ?? defaults.retryCnt),
    rnrRetry: checkInteger('rnrRetry', param.rnrRetry ?? 7, 0, 7),
    qpNum: message === 'resolveService' ? 0 : checkInteger('qpNum', qp?.qpNum ?? param.qpNum, 1, 0xffffff),
    srq: qp ? qp.srq !== undefined : checkBoolean('srq', param.srq ?? false),
    qkey: checkU32('qkey', param.qkey ?? UDP_QKEY),
    ...(param.ece && { ece: { vendorId: param.ece.vendorId ?? 0, options: param.ece.options ?? 0 } }),
  };
}

/**
 * Returns smaller depths for another attempt after a refusal, or undefined when another attempt would not help. A
 * server that cannot serve so many READs says so (INSUFFICIENT_RESP_RESOURCES), and gets the default, then one.
 * Programs of librdmacm whose device has fewer than the REQ asks for fail to accept, and reject without data
 * (CONSUMER_DEFINED): they get the default.
 */
export function smallerOffer(
  param: CheckedConnParam,
  reason: number,
  privateData: Uint8Array,
): CheckedConnParam | undefined {
  const { responderResources, initiatorDepth } = param;
  const largest = Math.max(responderResources, initiatorDepth);
  const isTooMany = reason === RejectReason.INSUFFICIENT_RESP_RESOURCES;
  const isUnexplained = reason === RejectReason.CONSUMER_DEFINED && privateData.every((byte) => byte === 0);
  const depth = largest > CONNECT_DEPTH ? CONNECT_DEPTH : 1;
  if (largest <= depth || !(isTooMany || (isUnexplained && depth === CONNECT_DEPTH))) return undefined;
  return {
    ...param,
    responderResources: Math.min(responderResources, depth),
    initiatorDepth: Math.min(initiatorDepth, depth),
  };
}

/** Checks a number of retries: 0..7, or Infinity. @throws TypeError, RangeError */
export function checkRetries(name: string, value: number): number {
  return value === Number.POSITIVE_INFINITY ? value : checkInteger(name, value, 0, 7);
}

/** Checks private data. @throws TypeError; RangeError when it has more than `limit` bytes */
export function checkPrivateData(data: Uint8Array | undefined, limit: number): Uint8Array {
  if (data === undefined) return NO_DATA;
  if (!(data instanceof Uint8Array)) throw wrongType('privateData', data, 'a Uint8Array');
  if (data.length > limit) throw outOfRange(`privateData has ${data.length} bytes, must have at most ${limit}`);
  return data;
}
