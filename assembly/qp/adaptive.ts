// Adaptive retransmission, of the requester. The ACK timeout is far longer than a round trip, so a lost NAK or a lost
// retransmission would stall the connection for most of it. The requester therefore measures round-trip times. When an
// ACK is overdue against them, it retransmits the oldest packet (a probe) and requests an ACK. The response decides:
// - an ACK of that packet alone: the packet was lost, and so are all packets behind it;
// - an ACK of more: the packet was not lost, and nothing else is retransmitted;
// - a NAK names the missing packet as usual.
//
// A peer that was only slow thus receives one packet too many, or a window if it acknowledges every message. The probe
// costs no retry and leaves the ACK timer running: that timer alone decides when a peer is dead (IBTA 9.7.6.1.3).
//
// The timeout is that of TCP (RFC 6298): the smoothed round-trip time plus four times its variance, doubled with each
// probe until a packet that was sent only once and requested an ACK is acknowledged (Karn's algorithm), or a probe is
// answered after a usual round trip: where many packets are lost, few are sent only once. On short paths
// it is the peer that delays an ACK, not a router: garbage collection or a busy processor stalls it for a hundred round
// trips. The minimum timeout is therefore long, and short only for a while after a loss.
import { DecisionKind, RetransmitReason } from '../codes';
import { Counter } from '../counters';
import { Card } from '../host/card';
import { psnDiff } from '../wire/psn';
import { recordDecision } from './decisions';
import { Qp } from './qp';
import { rewind } from './rewind';
import { schedule } from './schedule';
import { armTimer, rttBound } from './timer';
import { halveWindow } from './window';

/** Nanoseconds. Most pauses of a program or a machine are shorter. */
const MIN_RTO: u64 = 16_000_000;
/** After a loss. Most turns of a busy event loop are shorter, and so is the delay of a switch's full queue. */
const MIN_RTO_LOSSY: u64 = 1_000_000;
/** Time after a loss in which the short minimum applies. */
const LOSSY_PERIOD: u64 = 250_000_000;
/**
 * When this thread itself is this late, the ACK may have arrived without being processed: the deadline is extended
 * once.
 */
const MAX_LATENESS: u64 = 200_000;
/** Longer round trips count as this one, so that the arithmetic fits 32 bits. */
const MAX_SAMPLE: u64 = 1 << 30;

/** Starts a connection: no round trip is measured yet. */
export function initAdaptive(qp: Qp): void {
  qp.srtt = 0;
  qp.rttvar = 0;
  qp.rttStart = 0;
  qp.earlyRetransmits = 0;
  qp.retransmittedAt = 0;
  qp.lossyUntil = 0;
  qp.isProbing = false;
  // nor is anything known of packets that overtake others (seqnak.ts)
  qp.nakDeadline = 0;
  qp.reorderWait = 0;
  qp.nakRtt = 0;
  qp.isReorderTrial = false;
  qp.peerBuffersAhead = false;
  qp.uselessWaits = 0;
  qp.selfFilledGaps = 0;
}

/** Switches adaptive retransmission on or off, at any time. */
export function setAdaptive(qp: Qp, isOn: bool): void {
  qp.isAdaptive = isOn;
  qp.earlyDeadline = 0;
  qp.rttStart = 0;
}

/**
 * A packet that requests an ACK is sent. Packets that were never retransmitted measure the round trip. So does any
 * packet until there is a measurement: where many are lost, none may come otherwise, and each loss would cost an ACK
 * timeout. If the answer to the original was taken for that to the repetition, the next sample corrects it.
 */
export function noteAckRequested(qp: Qp, psn: u32, isRetransmit: bool): void {
  if (!qp.isAdaptive) return;
  if (qp.rttStart == 0 && (!isRetransmit || (qp.srtt == 0 && qp.timeouts != 0))) {
    qp.rttStart = Card.get().now;
    qp.rttPsn = psn;
  }
  if (qp.earlyDeadline == 0) startEarlyTimer(qp);
}

/** The peer has acknowledged something new, and the ACK timer was restarted. */
export function noteAcked(qp: Qp): void {
  if (!qp.isAdaptive) return;
  if (qp.rttStart != 0 && psnDiff(qp.unackedPsn, qp.rttPsn) > 0) {
    addRttSample(qp, <i32>max<u64>(1, min(Card.get().now - qp.rttStart, MAX_SAMPLE)));
    qp.rttStart = 0;
    qp.earlyRetransmits = 0;
  }
  qp.earlyDeadline = 0;
  // only a packet that requested an ACK will be acknowledged
  if (psnDiff(qp.sendPsn, qp.unackedPsn) > <i32>qp.packetsSinceAckReq) startEarlyTimer(qp);
}

function addRttSample(qp: Qp, sample: i32): void {
  if (qp.srtt == 0) {
    qp.srtt = sample;
    qp.rttvar = sample >> 1;
    return;
  }
  qp.rttvar += (abs(qp.srtt - sample) - qp.rttvar) >> 2;
  qp.srtt += (sample - qp.srtt) >> 3;
}

/** A packet was certainly lost or reordered, in either direction. */
export function noteLoss(qp: Qp): void {
  qp.lossyUntil = Card.get().now + LOSSY_PERIOD;
}

function minRto(qp: Qp): u64 {
  return Card.get().now < qp.lossyUntil ? MIN_RTO_LOSSY : MIN_RTO;
}

/** Starts the early timer if it expires before the ACK timer. */
function startEarlyTimer(qp: Qp): void {
  if (qp.srtt == 0) return;
  qp.isEarlyDeadlineExtended = false;
  setEarlyDeadline(qp, Card.get().now + (max(rttBound(qp), minRto(qp)) << qp.earlyRetransmits));
}

function setEarlyDeadline(qp: Qp, deadline: u64): void {
  if (deadline >= qp.ackDeadline) return;
  qp.earlyDeadline = deadline;
  armTimer(qp);
}

/** An ACK is overdue: retransmits the oldest packet, and nothing else until a response arrives. */
export function expireEarly(qp: Qp, now: u64): void {
  if (qp.earlyDeadline == 0 || qp.earlyDeadline > now) return;
  let lateness = now - qp.earlyDeadline;
  qp.earlyDeadline = 0;
  if (lateness > MAX_LATENESS && !qp.isEarlyDeadlineExtended) {
    qp.isEarlyDeadlineExtended = true;
    return setEarlyDeadline(qp, now + minRto(qp));
  }
  qp.earlyRetransmits++;
  qp.isNakRetried = false;
  qp.retransmittedAt = now;
  qp.count(Counter.roce_adp_retrans);
  recordDecision(qp, DecisionKind.RETRANSMIT, RetransmitReason.EARLY, qp.unackedPsn, 1, qp.retryLeft);
  let resume = qp.isProbing ? qp.resumePsn : qp.sendPsn;
  rewind(qp, qp.unackedPsn);
  qp.resumePsn = resume;
  qp.isProbing = true;
  schedule(qp);
}

/**
 * Returns whether a response after this time answers the retransmission. A peer that was only late answers the original
 * packet, at any time.
 */
function isUsualRtt(qp: Qp, time: u64): bool {
  return time >= <u64>(qp.srtt >> 1) && time <= rttBound(qp);
}

/** A response to the retransmitted packet, or to a later one, has arrived. */
export function endProbe(qp: Qp): void {
  qp.isProbing = false;
  let isAnswer = isUsualRtt(qp, Card.get().now - qp.retransmittedAt);
  // as good as a sample: the measured round trip still holds
  if (isAnswer) qp.earlyRetransmits = 0;
  if (psnDiff(qp.unackedPsn, qp.sendPsn) <= 0) {
    recordDecision(qp, DecisionKind.PROBE_LOST, 0, qp.sendPsn, psnDiff(qp.unsentPsn, qp.sendPsn), 0);
    if (isAnswer) noteLoss(qp);
    return halveWindow(qp);
  }
  // resume where sending stopped, which may be in the middle of another retransmission
  let isBehind = psnDiff(qp.resumePsn, qp.unackedPsn) < 0;
  rewind(qp, isBehind ? qp.unackedPsn : qp.resumePsn);
  recordDecision(qp, DecisionKind.PROBE_DELIVERED, 0, qp.sendPsn, 0, 0);
  // the packets in flight have requested their ACK
  qp.packetsSinceAckReq = 0;
}
