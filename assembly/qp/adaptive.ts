// Adaptive retransmission: the ACK timer is far longer than a round trip, so that a NAK or a repeated packet that is lost as
// well would stand still for most of it. The requester measures round trips, and when an answer is late by them it repeats the
// oldest packet and asks for an ACK. What comes back tells:
// - an ACK of that packet alone: it was missing, and all behind it are taken for lost with it;
// - an ACK of more: it was there, and nothing is repeated;
// - a NAK names what is missing, as ever.
// So a peer that was merely slow is sent one packet too many. No try is spent, and the ACK timer runs on: whether a peer is
// dead is still for it to say, and it says so exactly when it would have (IBTA 9.7.6.1.3).
//
// The time to wait is that of TCP (RFC 6298): the smoothed round trip and four times its deviation, doubled with each repeat
// until a packet that left once and asked for an ACK has been answered (Karn). But its least is for a network of short ways,
// where it is peers that make an answer late, not routers.
import { Counter } from '../counters';
import { Card } from '../host/card';
import { psnDiff } from '../wire/psn';
import { Qp } from './qp';
import { rewind } from './retry';
import { schedule } from './schedule';
import { armed } from './timer';
import { halveWindow } from './window';

/** Nanoseconds. Most turns of an event loop with other things to do are shorter, and so is the way through a switch's full queue. */
const LEAST_WAIT: u64 = 1_000_000;
/** When this thread itself comes so late, the answer may be there and not be looked at yet: it waits once more. */
const LATE: u64 = 200_000;
/** Longer round trips are taken for this one, so that the arithmetic stays in 32 bits. */
const LONGEST: u64 = 1 << 30;

/** A connection begins: nothing is known of its round trips. */
export function initAdaptive(qp: Qp): void {
  qp.roundTrip = 0;
  qp.deviation = 0;
  qp.timedAt = 0;
  qp.earlyRepeats = 0;
  qp.isProbing = false;
}

/** Switches it on or off, at any time. */
export function setAdaptive(qp: Qp, isOn: bool): void {
  qp.isAdaptive = isOn;
  qp.earlyDeadline = 0;
  qp.timedAt = 0;
}

/** A packet that asks for an ACK leaves. The time that an answer takes is known only of one that was sent once. */
export function noteAsked(qp: Qp, psn: u32, isRepeated: bool): void {
  if (!qp.isAdaptive) return;
  if (qp.timedAt == 0 && !isRepeated) {
    qp.timedAt = Card.get().now;
    qp.timedPsn = psn;
  }
  if (qp.earlyDeadline == 0) awaitAnswer(qp);
}

/** The peer has answered something new, and the ACK timer has started anew. */
export function noteAnswered(qp: Qp): void {
  if (!qp.isAdaptive) return;
  if (qp.timedAt != 0 && psnDiff(qp.unackedPsn, qp.timedPsn) > 0) {
    measure(qp, <i32>max<u64>(1, min(Card.get().now - qp.timedAt, LONGEST)));
    qp.timedAt = 0;
    qp.earlyRepeats = 0;
  }
  qp.earlyDeadline = 0;
  // only a packet that has asked will be answered
  if (psnDiff(qp.sendPsn, qp.unackedPsn) > <i32>qp.unasked) awaitAnswer(qp);
}

function measure(qp: Qp, sample: i32): void {
  if (qp.roundTrip == 0) {
    qp.roundTrip = sample;
    qp.deviation = sample >> 1;
    return;
  }
  qp.deviation += (abs(qp.roundTrip - sample) - qp.deviation) >> 2;
  qp.roundTrip += (sample - qp.roundTrip) >> 3;
}

/** Waits for an answer, if the ACK timer does and will do so longer. */
function awaitAnswer(qp: Qp): void {
  if (qp.roundTrip == 0) return;
  let usual = <u64>qp.roundTrip + 4 * <u64>qp.deviation;
  qp.isExcused = false;
  waitUntil(qp, Card.get().now + (max(usual, LEAST_WAIT) << qp.earlyRepeats));
}

function waitUntil(qp: Qp, deadline: u64): void {
  if (deadline >= qp.ackDeadline) return;
  qp.earlyDeadline = deadline;
  armed(qp);
}

/** An answer is late: the oldest packet is repeated, and nothing else until one comes. */
export function expireEarly(qp: Qp, now: u64): void {
  if (qp.earlyDeadline == 0 || qp.earlyDeadline > now) return;
  let late = now - qp.earlyDeadline;
  qp.earlyDeadline = 0;
  if (late > LATE && !qp.isExcused) {
    qp.isExcused = true;
    return waitUntil(qp, now + LEAST_WAIT);
  }
  qp.earlyRepeats++;
  qp.count(Counter.roce_adp_retrans);
  rewind(qp, qp.unackedPsn);
  qp.isProbing = true;
  schedule(qp);
}

/** The answer to a repeated packet, or to one behind it. */
export function endProbe(qp: Qp): void {
  qp.isProbing = false;
  if (psnDiff(qp.unackedPsn, qp.sendPsn) <= 0) return halveWindow(qp);
  rewind(qp, qp.wirePsn);
  // those on their way have asked
  qp.unasked = 0;
}
