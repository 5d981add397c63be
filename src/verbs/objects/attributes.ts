/** Queue pair attributes (ibv_qp_attr), written to the card and read from it. */

import { checkBoolean, checkU32, show } from '../../base/options.js';
import type { Card } from '../../device/card.js';
import {
  AvOffset,
  codeOf,
  Errno,
  enumNames,
  nameOf,
  QpAttr,
  QpState,
  QpType,
  RETRY_INFINITE,
} from '../../device/codes.js';
import { invalidType, invalidValue, VerbsError } from '../../errors.js';
import { type AccessFlags, type AccessName, accessBits, accessNames } from '../access.js';
import type { AhAttr, ResolvedAddress } from '../address/resolvedaddress.js';
import type { AddressHandle } from './ah.js';

/** State of a queue pair (ibv_qp_state; IBTA 10.3). */
export type QpStateName = 'RESET' | 'INIT' | 'RTR' | 'RTS' | 'SQD' | 'SQE' | 'ERR';

/** Attributes for `qp.modify`. Which of them a transition needs or allows: see the tables in ibv_modify_qp(3). */
export interface QpAttributes {
  /** New state. Default: unchanged. */
  readonly state?: QpStateName;
  /** The state that the caller assumes the queue pair to be in. */
  readonly curQpState?: QpStateName;
  /** Whether SQ_DRAINED is reported when the send queue is drained in SQD. */
  readonly enSqdAsyncNotify?: boolean;
  /** Rights of the peer; the memory region needs the same right. */
  readonly qpAccessFlags?: AccessFlags;
  /** Index into the P_Key table: the partition of the queue pair. */
  readonly pkeyIndex?: number;
  /** Always 1, the only port. */
  readonly portNum?: number;
  /** Q_Key, 32 bits (UD only): datagrams with another Q_Key are dropped. */
  readonly qkey?: number;
  /** The peer's address: resolved by this call, or the result of `device.resolveAddress` or `pd.createAh`. */
  readonly ahAttr?: AhAttr | ResolvedAddress | AddressHandle;
  /** Path MTU in payload bytes per packet: 256, 512, 1024, 2048 or 4096. */
  readonly pathMtu?: number;
  /**
   * Local ACK timeout, a code 0..31: 4.096 us * 2^timeout; 0 = no timeout (IBTA 9.7.6.1.3). 14 is 67 ms. Codes below 12
   * act as 12, which is 17 ms (ConnectX: 16), and the timeout is never shorter than the measured round trip.
   */
  readonly timeout?: number;
  /**
   * Retries after ACK timeouts and sequence errors, 0..7; `Infinity` = without limit, as 7 is for rxe. All are
   * available again after any progress.
   */
  readonly retryCnt?: number;
  /**
   * Retries after RNR NAKs (the peer had no receive posted), 0..6, each when the peer asks for it; 7 = without limit:
   * then each waits for a quarter of the time since the first one, too, at most 41 ms.
   */
  readonly rnrRetry?: number;
  /** First PSN that the peer will send, 24 bits. */
  readonly rqPsn?: number;
  /** First PSN that we send, 24 bits. */
  readonly sqPsn?: number;
  /** Most outstanding RDMA READs and atomics as requester, 0..128; at most the peer's `maxDestRdAtomic`. */
  readonly maxRdAtomic?: number;
  /** Most outstanding RDMA READs and atomics as responder, 0..128. */
  readonly maxDestRdAtomic?: number;
  /**
   * Time that the peer waits after our RNR NAK, a code 0..31: 1 = 0.01 ms, 12 = 0.64 ms, 0 = 655 ms. While one message
   * goes on finding no receive, the NAKs after the seventh ask for a quarter of the time since the first one, at most
   * 41 ms.
   */
  readonly minRnrTimer?: number;
  /** The peer's queue pair number. */
  readonly destQpNum?: number;
}

/** Returns the code of a public queue pair type. @throws TypeError for another name */
export function qpTypeCode(name: string): number {
  const code = ['RC', 'UC', 'UD'].includes(name) ? codeOf(QpType, name) : undefined;
  if (code === undefined) throw invalidValue(`type is ${show(name)}, must be 'RC', 'UC' or 'UD'`);
  return code;
}

type AttributeName = keyof QpAttributes;

interface AttributeInfo {
  readonly attr: number;
  /** The legal values, for error messages. */
  readonly rule: string;
}

const ATTRIBUTES: Readonly<Record<AttributeName, AttributeInfo>> = {
  state: { attr: QpAttr.STATE, rule: 'a state that can follow the present one' },
  curQpState: { attr: QpAttr.CUR_STATE, rule: 'the present state of the queue pair' },
  enSqdAsyncNotify: { attr: QpAttr.EN_SQD_ASYNC_NOTIFY, rule: 'true or false' },
  qpAccessFlags: { attr: QpAttr.ACCESS_FLAGS, rule: 'localWrite, remoteWrite, remoteRead, remoteAtomic, flushGlobal' },
  pkeyIndex: { attr: QpAttr.PKEY_INDEX, rule: 'an index of the P_Key table' },
  portNum: { attr: QpAttr.PORT, rule: '1' },
  qkey: { attr: QpAttr.QKEY, rule: '32 bits' },
  ahAttr: { attr: QpAttr.AV, rule: 'an address' },
  pathMtu: { attr: QpAttr.PATH_MTU, rule: '256, 512, 1024, 2048 or 4096 bytes' },
  timeout: { attr: QpAttr.TIMEOUT, rule: '0 to 31' },
  retryCnt: { attr: QpAttr.RETRY_CNT, rule: '0 to 7, or Infinity' },
  rnrRetry: { attr: QpAttr.RNR_RETRY, rule: '0 to 7' },
  rqPsn: { attr: QpAttr.RQ_PSN, rule: '24 bits' },
  sqPsn: { attr: QpAttr.SQ_PSN, rule: '24 bits' },
  maxRdAtomic: { attr: QpAttr.MAX_QP_RD_ATOMIC, rule: '0 to 128' },
  maxDestRdAtomic: { attr: QpAttr.MAX_DEST_RD_ATOMIC, rule: '0 to 128' },
  minRnrTimer: { attr: QpAttr.MIN_RNR_TIMER, rule: '0 to 31' },
  destQpNum: { attr: QpAttr.DEST_QPN, rule: '24 bits, a queue pair number' },
};

/** Names of attributes that `modify` does not accept, for error messages. */
const UNSUPPORTED_NAMES = new Map<number, string>([
  [QpAttr.ALT_PATH, 'altAhAttr'],
  [QpAttr.PATH_MIG_STATE, 'pathMigState'],
  [QpAttr.CAP, 'cap'],
]);

/** @throws TypeError when a name is unknown */
export function checkAttributeNames(attributes: QpAttributes): void {
  if (typeof attributes !== 'object' || attributes === null)
    throw invalidType(`the attributes are ${show(attributes)}, must be an object`);
  for (const name in attributes)
    if (!Object.hasOwn(ATTRIBUTES, name))
      throw invalidValue(
        `'${name}' is no attribute of a queue pair, must be one of ${Object.keys(ATTRIBUTES).join(', ')}`,
      );
}

/**
 * Writes all attributes except `ahAttr` to the card's scratch memory.
 * @returns the attribute mask for qpModify, without the bit of `ahAttr`
 * @throws TypeError, RangeError
 */
export function writeAttributes(card: Card, attributes: QpAttributes): number {
  const base = card.exports.scratch() >>> 2;
  let mask = 0;
  for (const key in attributes) {
    const name = key as AttributeName;
    const value = attributes[name];
    if (value === undefined || name === 'ahAttr') continue;
    const { attr } = ATTRIBUTES[name];
    card.u32[base + attr] = encode(name, value);
    mask |= 1 << attr;
  }
  return mask;
}

/** Returns the error for a refused qpModify: the transition, and every attribute at fault. */
export function modifyError(
  card: Card,
  label: string,
  from: number,
  attributes: QpAttributes,
  errno: number,
): VerbsError {
  const to = attributes.state ?? nameOf(QpState, from);
  const names = (why: number, detail: (name: string) => string = (name) => name) =>
    attributeNames(card.exports.qpRefused(why)).map(detail).join(', ');
  const faults = [
    ['missing', names(0)],
    ['not allowed', names(1, (name) => (name === 'state' ? 'this transition' : name))],
    [
      'out of range',
      names(2, (name) => {
        const value = attributes[name as AttributeName];
        return `${name}${value === undefined ? '' : ` ${show(value)}`} (${ATTRIBUTES[name as AttributeName]?.rule ?? 'not supported'})`;
      }),
    ],
  ].filter(([, list]) => list !== '');
  const why =
    faults.length > 0
      ? faults.map((fault) => fault.join(': ')).join('; ')
      : `no such transition (${nameOf(Errno, errno)})`;
  return new VerbsError('EINVAL', `${label} ${nameOf(QpState, from)} -> ${to}: ${why}`);
}

/** Attributes, limits and progress of a queue pair, from `qp.query` (ibv_query_qp). */
export interface QpInfo {
  /** Queue pair number, 24 bits. */
  readonly qpNum: number;
  /** `RC`, `UC` or `UD`. */
  readonly type: string;
  /** Present state. */
  readonly state: QpStateName;
  /** Rights of the peer. */
  readonly qpAccessFlags: readonly AccessName[];
  /** Index into the P_Key table. */
  readonly pkeyIndex: number;
  /** Port number: 1. */
  readonly portNum: number;
  /** Q_Key, 32 bits. */
  readonly qkey: number;
  /** The peer's address. Undefined until it is set. */
  readonly ahAttr: Required<AhAttr> | undefined;
  /** Path MTU in payload bytes per packet. */
  readonly pathMtu: number;
  /** Local ACK timeout, a code 0..31: 4.096 us * 2^timeout; 0 = no timeout. */
  readonly timeout: number;
  /** Retries after ACK timeouts and sequence errors, 0..7. */
  readonly retryCnt: number;
  /** Retries after RNR NAKs, 0..7; 7 = without limit. */
  readonly rnrRetry: number;
  /** First PSN that the peer sends, 24 bits. */
  readonly rqPsn: number;
  /** First PSN that we send, 24 bits. */
  readonly sqPsn: number;
  /** Most outstanding RDMA READs and atomics as requester. */
  readonly maxRdAtomic: number;
  /** Most outstanding RDMA READs and atomics as responder. */
  readonly maxDestRdAtomic: number;
  /** RNR timer code 0..31; see `QpAttributes.minRnrTimer`. */
  readonly minRnrTimer: number;
  /** The peer's queue pair number. */
  readonly destQpNum: number;
  /** Sizes as granted (ibv_qp_cap): at least as large as requested. */
  readonly cap: {
    /** Work requests that the send queue holds. */
    readonly maxSendWr: number;
    /** Work requests that the receive queue holds; 0 with a shared receive queue. */
    readonly maxRecvWr: number;
    /** Scatter/gather elements per send work request. */
    readonly maxSendSge: number;
    /** Scatter/gather elements per receive work request; 0 with a shared receive queue. */
    readonly maxRecvSge: number;
    /** Bytes of inline data per send work request. */
    readonly maxInlineData: number;
  };
  /** Progress of the connection. */
  readonly progress: QpProgress;
}

/** Progress of a queue pair: pending requests, retries, PSNs, credits, rate. */
export interface QpProgress {
  /** Work requests in the send queue. */
  readonly sendPending: number;
  /** Work requests in the receive queue. */
  readonly recvPending: number;
  /** Retries left of `retryCnt`; reset by progress. */
  readonly retriesLeft: number;
  /** RNR retries left of `rnrRetry`; reset by progress. */
  readonly rnrRetriesLeft: number;
  /** Oldest PSN that the peer has not acknowledged. */
  readonly unackedPsn: number;
  /** PSN of the next packet to send. */
  readonly nextPsn: number;
  /** PSN that the peer must send next. */
  readonly expectedPsn: number;
  /** Messages received, modulo 2^24. */
  readonly msn: number;
  /** In-flight window: most unacknowledged packets. */
  readonly window: number;
  /** AETH syndrome of the last ACK or NAK (IBTA 9.7.5.1). */
  readonly lastSyndrome: number;
  /**
   * With `flowControl`: messages that need a receive and may be sent now. Absent when the peer has advertised no limit.
   */
  readonly credits?: number;
  /** Whether the next message waits for a credit of the peer. */
  readonly waitsForCredits: boolean;
  /** Rate limit of congestion control, bit/s, in steps of 1 kbit/s. Absent when there is none. */
  readonly rate?: number;
  /** Smoothed round-trip time, nanoseconds. Absent before the first ACK, and without `adaptiveRetransmission`. */
  readonly roundTrip?: number;
}

/** Value of QpAttr.CREDITS when the peer has advertised no limit. */
const NO_LIMIT = 0xffffffff;

/** Reads the limits of the queues that the card's `qpQuery` has written. */
export function readCap(card: Card): QpInfo['cap'] {
  const base = card.exports.scratch() >>> 2;
  const get = (attr: number) => card.u32[base + attr] as number;
  return {
    maxSendWr: get(QpAttr.MAX_SEND_WR),
    maxRecvWr: get(QpAttr.MAX_RECV_WR),
    maxSendSge: get(QpAttr.MAX_SEND_SGE),
    maxRecvSge: get(QpAttr.MAX_RECV_SGE),
    maxInlineData: get(QpAttr.MAX_INLINE),
  };
}

/** Reads the attributes that qpQuery has written to the card's scratch memory. */
export function readAttributes(card: Card, address: ResolvedAddress | undefined): QpInfo {
  const base = card.exports.scratch() >>> 2;
  const get = (attr: number) => card.u32[base + attr] as number;
  const credits = get(QpAttr.CREDITS);
  const rate = get(QpAttr.RATE) * 1000;
  const roundTrip = get(QpAttr.ROUND_TRIP);
  return {
    qpNum: get(QpAttr.QPN),
    type: nameOf(QpType, get(QpAttr.TYPE)),
    state: nameOf(QpState, get(QpAttr.STATE)) as QpStateName,
    qpAccessFlags: accessNames(get(QpAttr.ACCESS_FLAGS)),
    pkeyIndex: get(QpAttr.PKEY_INDEX),
    portNum: get(QpAttr.PORT),
    qkey: get(QpAttr.QKEY),
    ahAttr: address && {
      grh: {
        dgid: address.dgid,
        sgidIndex: address.sgidIndex,
        hopLimit: card.u32[base + AvOffset.HOP_LIMIT / 4] as number,
        trafficClass: card.u32[base + AvOffset.TRAFFIC_CLASS / 4] as number,
        flowLabel: card.u32[base + AvOffset.FLOW_LABEL / 4] as number,
      },
      sl: address.sl,
    },
    pathMtu: get(QpAttr.PATH_MTU),
    timeout: get(QpAttr.TIMEOUT),
    retryCnt: retries(get(QpAttr.RETRY_CNT)),
    rnrRetry: get(QpAttr.RNR_RETRY),
    rqPsn: get(QpAttr.RQ_PSN),
    sqPsn: get(QpAttr.SQ_PSN),
    maxRdAtomic: get(QpAttr.MAX_QP_RD_ATOMIC),
    maxDestRdAtomic: get(QpAttr.MAX_DEST_RD_ATOMIC),
    minRnrTimer: get(QpAttr.MIN_RNR_TIMER),
    destQpNum: get(QpAttr.DEST_QPN),
    cap: readCap(card),
    progress: {
      sendPending: get(QpAttr.SQ_PENDING),
      recvPending: get(QpAttr.RQ_PENDING),
      retriesLeft: retries(get(QpAttr.RETRY_LEFT)),
      rnrRetriesLeft: get(QpAttr.RNR_LEFT),
      unackedPsn: get(QpAttr.UNACKED_PSN),
      nextPsn: get(QpAttr.NEXT_PSN),
      expectedPsn: get(QpAttr.EXPECTED_PSN),
      msn: get(QpAttr.MSN),
      window: get(QpAttr.WINDOW),
      lastSyndrome: get(QpAttr.LAST_SYNDROME),
      ...(credits !== NO_LIMIT && { credits }),
      waitsForCredits: get(QpAttr.WAITS_FOR_CREDITS) !== 0,
      ...(rate > 0 && { rate }),
      ...(roundTrip > 0 && { roundTrip }),
    },
  };
}

/** `retryCnt` of the card's value. */
function retries(value: number): number {
  return value === RETRY_INFINITE ? Number.POSITIVE_INFINITY : value;
}

function encode(name: AttributeName, value: unknown): number {
  switch (name) {
    case 'state':
    case 'curQpState': {
      const state = typeof value === 'string' ? codeOf(QpState, value) : undefined;
      if (state === undefined)
        throw invalidValue(`${name} is ${show(value)}, must be one of ${enumNames(QpState).join(', ')}`);
      return state;
    }
    case 'enSqdAsyncNotify':
      return checkBoolean(name, value) ? 1 : 0;
    case 'qpAccessFlags':
      return accessBits(name, value as AccessFlags);
    case 'retryCnt':
      // the card refuses other numbers with all that is wrong besides
      return value === Number.POSITIVE_INFINITY ? RETRY_INFINITE : Math.min(checkU32(name, value), RETRY_INFINITE - 1);
    default:
      return checkU32(name, value);
  }
}

function attributeNames(mask: number): string[] {
  const names: string[] = [];
  for (let attr = 0; attr < 32; attr++) {
    if ((mask & (1 << attr)) === 0) continue;
    const name = (Object.keys(ATTRIBUTES) as AttributeName[]).find((key) => ATTRIBUTES[key].attr === attr);
    names.push(name ?? UNSUPPORTED_NAMES.get(attr) ?? `attribute ${attr}`);
  }
  return names;
}
