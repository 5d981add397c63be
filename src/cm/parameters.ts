/** What programs say to connect and accept (rdma_conn_param), checked and completed. */
import { LIMITS } from '../device/codes.js';
import { checkBoolean, checkInteger, checkU32, show } from '../verbs/check.js';
import type { Qp } from '../verbs/qp.js';
import { privateDataRoom } from './messages.js';

/** Everything may be left out. */
export interface ConnParam {
  /**
   * Goes along: with `connect` 56 bytes at most, with `accept` 196, of datagram services 180 and 136. The peer sees it padded
   * with zeroes to that length.
   */
  readonly privateData?: Uint8Array;
  /** READs and atomics of the peer that we serve at a time, 0..128. Default: the most; in `accept` what the peer asks for. */
  readonly responderResources?: number;
  /** READs and atomics that we have outstanding, 0..128. Default: the most; in `accept` what the peer serves. */
  readonly initiatorDepth?: number;
  /**
   * Credits, see `Qp.flowControl`; a client has them only if the server says so, too. Default: as the id's queue pair has it; in
   * `accept` also if the client asks for them.
   */
  readonly flowControl?: boolean;
  /** Retries after timeouts, 0..7, of both ends; `connect` only. Default 7. */
  readonly retryCount?: number;
  /** How often the **peer** tries again when we have no receive posted, 0..7; 7 = without end. Default 7. */
  readonly rnrRetryCount?: number;
  /** Without a queue pair of the id's: that of the program, 24 bits, and whether it has a shared receive queue. */
  readonly qpNum?: number;
  readonly srq?: boolean;
  /** Of a datagram service: what who sends to us must know. Default 0x01234567, as rdma_cm has it. */
  readonly qkey?: number;
}

/** The Q_Key of datagrams and groups of rdma_cm (RDMA_UDP_QKEY). */
export const UDP_QKEY = 0x01234567;

export interface CompleteParam {
  readonly privateData: Uint8Array;
  readonly responderResources: number;
  readonly initiatorDepth: number;
  readonly flowControl: boolean;
  readonly retryCount: number;
  readonly rnrRetryCount: number;
  readonly qpNum: number;
  readonly srq: boolean;
  readonly qkey: number;
}

/** What fits behind the header of rdma_cm, or without it. */
export const ROOM = {
  connect: privateDataRoom('REQ') - 36,
  accept: privateDataRoom('REP'),
  reject: privateDataRoom('REJ'),
  disconnect: privateDataRoom('DREQ'),
  resolveService: privateDataRoom('SIDR_REQ') - 36,
  answerService: privateDataRoom('SIDR_REP'),
} as const;

/**
 * @param message what it goes along with @param peer what it allows of each kind, and asks for
 * @throws TypeError, RangeError
 */
export function completeParam(
  param: ConnParam,
  qp: Qp | undefined,
  message: keyof typeof ROOM,
  peer: Pick<Required<ConnParam>, 'responderResources' | 'initiatorDepth' | 'flowControl'>,
): CompleteParam {
  const depth = (name: 'responderResources' | 'initiatorDepth') =>
    checkInteger(name, param[name] ?? Math.min(peer[name], LIMITS.maxRdAtomic), 0, LIMITS.maxRdAtomic);
  const hasCredits = qp?.type === 'RC' && (qp.flowControl || peer.flowControl);
  if (qp !== undefined && param.qpNum !== undefined && param.qpNum !== qp.qpNum)
    throw new TypeError(`qpNum is ${param.qpNum}, but the id has ${qp}`);
  return {
    privateData: checkPrivateData(param.privateData, ROOM[message]),
    responderResources: depth('responderResources'),
    initiatorDepth: depth('initiatorDepth'),
    flowControl: checkBoolean('flowControl', param.flowControl ?? hasCredits),
    retryCount: checkInteger('retryCount', param.retryCount ?? 7, 0, 7),
    rnrRetryCount: checkInteger('rnrRetryCount', param.rnrRetryCount ?? 7, 0, 7),
    qpNum: message === 'resolveService' ? 0 : checkInteger('qpNum', qp?.qpNum ?? param.qpNum, 1, 0xffffff),
    srq: qp ? qp.srq !== undefined : checkBoolean('srq', param.srq ?? false),
    qkey: checkU32('qkey', param.qkey ?? UDP_QKEY),
  };
}

/** @throws TypeError, RangeError when it is too long for its message */
export function checkPrivateData(data: Uint8Array | undefined, room: number): Uint8Array {
  if (data === undefined) return new Uint8Array(0);
  if (!(data instanceof Uint8Array)) throw new TypeError(`privateData is ${show(data)}, must be a Uint8Array`);
  if (data.length > room) throw new RangeError(`privateData has ${data.length} bytes, there is room for ${room}`);
  return data;
}
