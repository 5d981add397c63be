/** The attributes of a queue pair (ibv_qp_attr) and their way into the card and back. */

import type { Card } from '../device/card.js';
import { AvOffset, codeOf, Errno, enumNames, nameOf, QpAttr, QpState, QpType } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import { type AccessFlags, type AccessName, accessBits, accessNames } from './access.js';
import type { AddressHandle, AhAttr } from './ah.js';
import { checkBoolean, checkU32, show } from './check.js';
import type { Ah } from './udah.js';

export type QpStateName = 'RESET' | 'INIT' | 'RTR' | 'RTS' | 'SQD' | 'SQE' | 'ERR';

/** What `qp.modify` takes. Which attributes a transition needs or allows is the table of ibv_modify_qp. */
export interface QpAttributes {
  /** The state to go to; without it the state stays. */
  readonly state?: QpStateName;
  /** The state that the program believes the queue pair to be in. */
  readonly curQpState?: QpStateName;
  /** An SQ_DRAINED event when SQD has come to rest. */
  readonly enSqdAsyncNotify?: boolean;
  /** What the peer may do; it also needs the region's right. */
  readonly qpAccessFlags?: AccessFlags;
  /** Index of the P_Key table: the partition whose packets the queue pair sends and takes. */
  readonly pkeyIndex?: number;
  /** 1, the only one. */
  readonly portNum?: number;
  /** Of datagrams: who sends to us must know it. */
  readonly qkey?: number;
  /** The peer's address: resolved by the call, or a handle of `device.createAh` or `pd.createAh`. */
  readonly ahAttr?: AhAttr | AddressHandle | Ah;
  /** Payload bytes of a packet: 256, 512, 1024, 2048 or 4096. */
  readonly pathMtu?: number;
  /** Local ACK timeout, 0..31: 4.096 us * 2^timeout; 0 = wait for ever. 14 is 67 ms. */
  readonly timeout?: number;
  /** Retries after timeouts and sequence errors, 0..7. */
  readonly retryCnt?: number;
  /** Retries after the peer had no receive posted, 0..6; 7 = without end. */
  readonly rnrRetry?: number;
  /** First PSN that the peer will send, 24 bits. */
  readonly rqPsn?: number;
  /** First PSN that we send, 24 bits. */
  readonly sqPsn?: number;
  /** RDMA READs and atomics that we may have outstanding; not more than the peer's `maxDestRdAtomic`. */
  readonly maxRdAtomic?: number;
  /** RDMA READs and atomics of the peer that we keep the answers of. */
  readonly maxDestRdAtomic?: number;
  /** How long the peer is to wait when no receive is posted here, 0..31: a code, 1 = 0.01 ms, 12 = 0.64 ms, 0 = 655 ms. */
  readonly minRnrTimer?: number;
  /** The peer's queue pair number. */
  readonly destQpNum?: number;
}

/** The code of a type that a program may ask for. @throws TypeError */
export function qpTypeCode(name: string): number {
  const code = ['RC', 'UC', 'UD'].includes(name) ? codeOf(QpType, name) : undefined;
  if (code === undefined) throw new TypeError(`type is ${show(name)}, must be 'RC', 'UC' or 'UD'`);
  return code;
}

type Name = keyof QpAttributes;

interface Row {
  readonly attr: number;
  /** What values are legal, for messages. */
  readonly rule: string;
}

const ROWS: Readonly<Record<Name, Row>> = {
  state: { attr: QpAttr.STATE, rule: 'a state that this one leads to' },
  curQpState: { attr: QpAttr.CUR_STATE, rule: 'the state that the queue pair is in' },
  enSqdAsyncNotify: { attr: QpAttr.EN_SQD_ASYNC_NOTIFY, rule: 'true or false' },
  qpAccessFlags: { attr: QpAttr.ACCESS_FLAGS, rule: 'localWrite, remoteWrite, remoteRead, remoteAtomic, flushGlobal' },
  pkeyIndex: { attr: QpAttr.PKEY_INDEX, rule: 'an index of the P_Key table' },
  portNum: { attr: QpAttr.PORT, rule: '1' },
  qkey: { attr: QpAttr.QKEY, rule: '32 bits' },
  ahAttr: { attr: QpAttr.AV, rule: 'an address' },
  pathMtu: { attr: QpAttr.PATH_MTU, rule: '256, 512, 1024, 2048 or 4096 bytes' },
  timeout: { attr: QpAttr.TIMEOUT, rule: '0 to 31' },
  retryCnt: { attr: QpAttr.RETRY_CNT, rule: '0 to 7' },
  rnrRetry: { attr: QpAttr.RNR_RETRY, rule: '0 to 7' },
  rqPsn: { attr: QpAttr.RQ_PSN, rule: '24 bits' },
  sqPsn: { attr: QpAttr.SQ_PSN, rule: '24 bits' },
  maxRdAtomic: { attr: QpAttr.MAX_QP_RD_ATOMIC, rule: '0 to 128' },
  maxDestRdAtomic: { attr: QpAttr.MAX_DEST_RD_ATOMIC, rule: '0 to 128' },
  minRnrTimer: { attr: QpAttr.MIN_RNR_TIMER, rule: '0 to 31' },
  destQpNum: { attr: QpAttr.DEST_QPN, rule: '24 bits, a queue pair number' },
};

/** Names that a refusal can meet although `modify` does not take them. */
const OTHER_NAMES = new Map<number, string>([
  [QpAttr.ALT_PATH, 'altAhAttr'],
  [QpAttr.PATH_MIG_STATE, 'pathMigState'],
  [QpAttr.CAP, 'cap'],
]);

/** @throws TypeError when a name is unknown */
export function checkAttributeNames(attributes: QpAttributes): void {
  if (typeof attributes !== 'object' || attributes === null)
    throw new TypeError(`the attributes are ${show(attributes)}, must be an object`);
  for (const name of Object.keys(attributes))
    if (!Object.hasOwn(ROWS, name))
      throw new TypeError(`'${name}' is no attribute of a queue pair; known are ${Object.keys(ROWS).join(', ')}`);
}

/**
 * Writes all attributes but the address to the card's scratch.
 * @returns the mask for qpModify, the address's bit not included
 * @throws TypeError, RangeError
 */
export function writeAttributes(card: Card, attributes: QpAttributes): number {
  const base = card.exports.scratch() >>> 2;
  let mask = 0;
  for (const [name, value] of Object.entries(attributes) as [Name, unknown][]) {
    if (value === undefined || name === 'ahAttr') continue;
    const { attr } = ROWS[name];
    card.u32[base + attr] = encode(name, value);
    mask |= 1 << attr;
  }
  return mask;
}

/** The refusal of qpModify in words: every attribute at fault, with the transition. */
export function refusal(card: Card, label: string, from: number, attributes: QpAttributes, errno: number): VerbsError {
  const to = attributes.state ?? nameOf(QpState, from);
  const names = (why: number, detail: (name: string) => string = (name) => name) =>
    attributeNames(card.exports.qpRefused(why)).map(detail).join(', ');
  const faults = [
    ['missing', names(0)],
    ['not allowed', names(1, (name) => (name === 'state' ? 'this transition' : name))],
    [
      'out of range',
      names(2, (name) => {
        const value = attributes[name as Name];
        return `${name}${value === undefined ? '' : ` ${show(value)}`} (${ROWS[name as Name]?.rule ?? 'not supported'})`;
      }),
    ],
  ].filter(([, list]) => list !== '');
  const why =
    faults.length > 0
      ? faults.map((fault) => fault.join(': ')).join('; ')
      : `no such transition (${nameOf(Errno, errno)})`;
  return new VerbsError('EINVAL', `${label} ${nameOf(QpState, from)} -> ${to}: ${why}`);
}

/** What `qp.query` answers. */
export interface QpInfo {
  readonly qpNum: number;
  readonly type: string;
  readonly state: QpStateName;
  readonly qpAccessFlags: readonly AccessName[];
  readonly pkeyIndex: number;
  readonly portNum: number;
  readonly qkey: number;
  readonly ahAttr: Required<AhAttr> | undefined;
  /** Bytes. */
  readonly pathMtu: number;
  readonly timeout: number;
  readonly retryCnt: number;
  readonly rnrRetry: number;
  readonly rqPsn: number;
  readonly sqPsn: number;
  readonly maxRdAtomic: number;
  readonly maxDestRdAtomic: number;
  readonly minRnrTimer: number;
  readonly destQpNum: number;
  readonly cap: {
    readonly maxSendWr: number;
    readonly maxRecvWr: number;
    readonly maxSendSge: number;
    readonly maxRecvSge: number;
    readonly maxInlineData: number;
  };
  readonly progress: QpProgress;
}

/** Where a queue pair stands. */
export interface QpProgress {
  /** Work requests in the send and the receive queue. */
  readonly sendPending: number;
  readonly recvPending: number;
  /** What is left of `retryCnt` and `rnrRetry` until the next progress. */
  readonly retriesLeft: number;
  readonly rnrRetriesLeft: number;
  /** Oldest PSN that the peer has not acknowledged. */
  readonly unackedPsn: number;
  /** PSN of the next packet to send. */
  readonly nextPsn: number;
  /** PSN that the peer must send next. */
  readonly expectedPsn: number;
  /** Messages received, modulo 2^24. */
  readonly msn: number;
  /** Packets that may be in flight. */
  readonly window: number;
  /** AETH syndrome of the last answer. */
  readonly lastSyndrome: number;
  /** With `flowControl`: messages that need a receive and may be sent now. Absent when no limit is known. */
  readonly credits?: number;
  /** The next message waits until the peer tells of a receive for it. */
  readonly waitsForCredits: boolean;
  /** To which congestion has slowed it down, bit/s, to the kbit. Absent when it has not. */
  readonly rate?: number;
  /** From a request to its answer, smoothed, nanoseconds. Absent before the first, and without `adaptiveRetransmission`. */
  readonly roundTrip?: number;
}

/** Of CREDITS: no limit is known. */
const NO_LIMIT = 0xffffffff;

/** Reads what qpQuery has put into the card's scratch. */
export function readAttributes(card: Card, address: AddressHandle | undefined): QpInfo {
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
    },
    pathMtu: get(QpAttr.PATH_MTU),
    timeout: get(QpAttr.TIMEOUT),
    retryCnt: get(QpAttr.RETRY_CNT),
    rnrRetry: get(QpAttr.RNR_RETRY),
    rqPsn: get(QpAttr.RQ_PSN),
    sqPsn: get(QpAttr.SQ_PSN),
    maxRdAtomic: get(QpAttr.MAX_QP_RD_ATOMIC),
    maxDestRdAtomic: get(QpAttr.MAX_DEST_RD_ATOMIC),
    minRnrTimer: get(QpAttr.MIN_RNR_TIMER),
    destQpNum: get(QpAttr.DEST_QPN),
    cap: {
      maxSendWr: get(QpAttr.MAX_SEND_WR),
      maxRecvWr: get(QpAttr.MAX_RECV_WR),
      maxSendSge: get(QpAttr.MAX_SEND_SGE),
      maxRecvSge: get(QpAttr.MAX_RECV_SGE),
      maxInlineData: get(QpAttr.MAX_INLINE),
    },
    progress: {
      sendPending: get(QpAttr.SQ_PENDING),
      recvPending: get(QpAttr.RQ_PENDING),
      retriesLeft: get(QpAttr.RETRY_LEFT),
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

function encode(name: Name, value: unknown): number {
  switch (name) {
    case 'state':
    case 'curQpState': {
      const state = typeof value === 'string' ? codeOf(QpState, value) : undefined;
      if (state === undefined)
        throw new TypeError(`${name} is ${show(value)}, must be one of ${enumNames(QpState).join(', ')}`);
      return state;
    }
    case 'enSqdAsyncNotify':
      return checkBoolean(name, value) ? 1 : 0;
    case 'qpAccessFlags':
      return accessBits(name, value as AccessFlags);
    default:
      return checkU32(name, value);
  }
}

function attributeNames(mask: number): string[] {
  const names: string[] = [];
  for (let attr = 0; attr < 32; attr++) {
    if ((mask & (1 << attr)) === 0) continue;
    const name = (Object.keys(ROWS) as Name[]).find((key) => ROWS[key].attr === attr);
    names.push(name ?? OTHER_NAMES.get(attr) ?? `attribute ${attr}`);
  }
  return names;
}
