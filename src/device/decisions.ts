/** The card's trace of decisions, decoded: changes of state, retransmissions, failures and NAKs of its queue pairs. */
import type { Card } from './card.js';
import {
  DecisionKind,
  DecisionOffset,
  DecisionRingOffset,
  decisionBytes,
  nameOf,
  QpState,
  RetransmitReason,
  StateReason,
  WcStatus,
} from './codes.js';
import { syndrome as syndromeText } from './decode.js';

/** An RNR retry count without limit. */
const RNR_RETRY_INFINITE = 7;

/** Fields of every decision. */
interface Traced {
  /**
   * Position among all decisions since the trace was switched on, from 0: a gap in front of it has been overwritten.
   */
  readonly number: number;
  /** Time of the turn in which it was taken, nanoseconds of the device's clock. */
  readonly at: number;
  /** Number of the queue pair. */
  readonly qpNum: number;
  /** The decision in one line. */
  readonly text: string;
}

/** A change of state: the old state, the new one, and why. */
export interface StateDecision extends Traced {
  /** A change of state. */
  readonly kind: 'STATE';
  /** The state before, e.g. `RTS`. */
  readonly from: string;
  /** The state afterwards, e.g. `ERR`. */
  readonly to: string;
  /** MODIFY, DESTROY, SEND_FAILED, REQUEST_REJECTED, RECV_FAILED or CQ_OVERRUN. */
  readonly reason: string;
}

/** Packets are sent again. */
export interface RetransmitDecision extends Traced {
  /** A retransmission. */
  readonly kind: 'RETRANSMIT';
  /** ACK_TIMEOUT, SEQUENCE_NAK, RNR_NAK, IMPLIED_NAK or EARLY. */
  readonly reason: string;
  /** The first packet that is sent again. */
  readonly psn: number;
  /** Number of PSNs that are sent again; those of a READ's response count as one request. */
  readonly packets: number;
  /** Retries, or RNR retries, that are left; 7 RNR retries are any number. */
  readonly retriesLeft: number;
}

/** The steps of a retransmission after its begin, and its end. */
export interface RecoveryDecision extends Traced {
  /**
   * `READ_RESUMED`: the retransmission continues a READ of which `packets` have arrived. `SKIPPED`: an ACK covers
   * `packets` that were about to be sent again. `RECOVERED`: the first progress after a retry, so that all retries are
   * available again. `PROBE_LOST`: the packet of an early retransmission was lost, so the `packets` behind it count as
   * lost. `PROBE_DELIVERED`: that packet was not lost. `REPLAY_DROPPED`: the peer has requested a READ again whose
   * memory is no longer registered; `packets` of the response are not sent. `ACK_DEFERRED`: the responder sends
   * the ACK of packets that the peer was to send again after a NAK, because they have not come.
   */
  readonly kind:
    | 'READ_RESUMED'
    | 'SKIPPED'
    | 'RECOVERED'
    | 'PROBE_LOST'
    | 'PROBE_DELIVERED'
    | 'REPLAY_DROPPED'
    | 'ACK_DEFERRED';
  /**
   * PSN at which sending continues; for `RECOVERED`, the oldest PSN that is not acknowledged; for `REPLAY_DROPPED`, the
   * first that is not sent; for `ACK_DEFERRED`, that of the ACK.
   */
  readonly psn: number;
  /** Number of packets that `kind` refers to; 0 for `RECOVERED` and `ACK_DEFERRED`. */
  readonly packets: number;
}

/** A send work request fails, and the queue pair with it. */
export interface FailureDecision extends Traced {
  /** A send work request that failed. */
  readonly kind: 'SEND_FAILED';
  /** Status of the completion, e.g. `RETRY_EXC_ERR`. */
  readonly status: string;
  /** PSN of the packet that failed. */
  readonly psn: number;
  /** AETH syndrome; 0 = none. */
  readonly syndrome: number;
}

/** The responder rejects a packet. */
export interface NakDecision extends Traced {
  /** A NAK that the responder sends. */
  readonly kind: 'NAK';
  /** PSN in the NAK. */
  readonly psn: number;
  /** AETH syndrome of the NAK. */
  readonly syndrome: number;
  /** Missing packets in front of the one that arrived; 0 = it was this one. */
  readonly gap: number;
}

/** A decision of a queue pair, off the path of ordinary packets. */
export type Decision = StateDecision | RetransmitDecision | RecoveryDecision | FailureDecision | NakDecision;

/**
 * Returns the decisions that the card still has, oldest first. Empty when it traces none.
 * @param qpNum of this queue pair only; default: of all
 */
export function decisions(card: Card, qpNum?: number): Decision[] {
  return card.exclusively(() => {
    const ring = card.exports.decisions();
    if (ring === 0) return [];
    const count = card.u32[(ring + DecisionRingOffset.COUNT) >>> 2] as number;
    const mask = card.u32[(ring + DecisionRingOffset.MASK) >>> 2] as number;
    const found: Decision[] = [];
    for (let number = Math.max(0, count - mask - 1); number < count; number++) {
      const decision = decode(card, number, ring + DecisionRingOffset.ENTRIES + (number & mask) * decisionBytes);
      if (qpNum === undefined || decision.qpNum === qpNum) found.push(decision);
    }
    return found;
  });
}

function decode(card: Card, number: number, entry: number): Decision {
  const field = (offset: number): number => card.u32[(entry + offset) >>> 2] as number;
  const [reason, psn, packets, value] = [
    field(DecisionOffset.REASON),
    field(DecisionOffset.PSN),
    field(DecisionOffset.PACKETS),
    field(DecisionOffset.VALUE),
  ];
  const common = {
    number,
    at: card.f64[(entry + DecisionOffset.AT) >>> 3] as number,
    qpNum: field(DecisionOffset.QPN),
  };
  switch (field(DecisionOffset.KIND)) {
    case DecisionKind.STATE: {
      const [from, to] = [nameOf(QpState, value & 0xff), nameOf(QpState, value >>> 8)];
      const why = nameOf(StateReason, reason);
      return { ...common, kind: 'STATE', from, to, reason: why, text: `state ${from} -> ${to}: ${STATE_TEXT[why]}` };
    }
    case DecisionKind.RETRANSMIT: {
      const why = nameOf(RetransmitReason, reason);
      const left = reason === RetransmitReason.RNR_NAK && value === RNR_RETRY_INFINITE ? 'any number' : value;
      const text = `retransmits ${packetsText(packets)} from psn ${psn} on: ${RETRANSMIT_TEXT[why]}, retries left: ${left}`;
      return { ...common, kind: 'RETRANSMIT', reason: why, psn, packets, retriesLeft: value, text };
    }
    case DecisionKind.SEND_FAILED: {
      const status = nameOf(WcStatus, reason);
      const text = `send fails at psn ${psn}: ${status}${value === 0 ? '' : `, ${syndromeText(value)}`}`;
      return { ...common, kind: 'SEND_FAILED', status, psn, syndrome: value, text };
    }
    case DecisionKind.NAK: {
      const missing = packets > 0 ? `, ${packetsText(packets)} missing` : '';
      const text = `psn ${psn}: sends ${syndromeText(value)}${missing}`;
      return { ...common, kind: 'NAK', psn, syndrome: value, gap: packets, text };
    }
    default: {
      const kind = nameOf(DecisionKind, field(DecisionOffset.KIND)) as RecoveryDecision['kind'];
      return { ...common, kind, psn, packets, text: RECOVERY_TEXT[kind](psn, packetsText(packets)) };
    }
  }
}

const packetsText = (count: number): string => (count === 1 ? '1 packet' : `${count} packets`);

const STATE_TEXT: Readonly<Record<string, string>> = {
  MODIFY: 'modified by the application',
  DESTROY: 'destroyed',
  SEND_FAILED: 'a send work request failed',
  REQUEST_REJECTED: "a request of the peer's was rejected",
  RECV_FAILED: 'a receive work request failed',
  CQ_OVERRUN: 'a completion queue is full',
};

const RETRANSMIT_TEXT: Readonly<Record<string, string>> = {
  ACK_TIMEOUT: 'the ACK timer expired',
  SEQUENCE_NAK: 'NAK of a PSN sequence error',
  RNR_NAK: 'RNR NAK, after the delay that it asks for',
  IMPLIED_NAK: 'a later response has come, the one for this PSN has not',
  EARLY: 'its ACK is overdue against the round-trip time',
};

const RECOVERY_TEXT: Readonly<Record<RecoveryDecision['kind'], (psn: number, packets: string) => string>> = {
  READ_RESUMED: (psn, packets) => `resumes a READ at psn ${psn}: ${packets} of its response have arrived`,
  SKIPPED: (psn, packets) => `goes on at psn ${psn}: ${packets} need not be sent again`,
  RECOVERED: (psn) => `recovers: everything before psn ${psn} is acknowledged, all retries are available again`,
  PROBE_LOST: (psn, packets) => `the packet was lost: sends ${packets} again from psn ${psn} on`,
  REPLAY_DROPPED: (psn) => `drops a repeated READ at psn ${psn}: its memory is gone`,
  ACK_DEFERRED: (psn) =>
    `sends the ACK of psn ${psn}, which it has deferred: the peer has not sent all before it again`,
  PROBE_DELIVERED: (psn) => `the packet was not lost: goes on at psn ${psn}`,
};
