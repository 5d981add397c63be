// Adaptive retransmission: the ACK timer is far longer than a round trip, so that a NAK or a repeated packet that is lost as
// well would stand still for most of it. The requester measures round trips, and when an answer is late by them it repeats the
// oldest packet and asks for an ACK. What comes back tells:
// - an ACK of that packet alone: it was missing, and all behind it are taken for lost with it;
// - an ACK of more: it was there, and nothing is repeated;
// - a NAK names what is missing, as ever.
// So a peer that was merely slow is sent one packet too many, or a window if it acknowledges every message. No try is spent, and the ACK timer runs on: whether a peer is
// dead is still for it to say, and it says so exactly when it would have (IBTA 9.7.6.1.3).
//
// The time to wait is that of TCP (RFC 6298): the smoothed round trip and four times its deviation, doubled with each repeat
// until a packet that left once and asked for an ACK has been answered (Karn). But on short ways it is peers that make an answer
// late, not routers: one that collects garbage, or whose processor somebody else has, stands still for a hundred round trips. So the
// least wait is long, until something was lost: then it is short for a while.
import { Counter } from '../counters';
import { Card } from '../host/card';
import { psnDiff } from '../wire/psn';
import { Qp } from './qp';
import { rewind } from './retry';
import { schedule } from './schedule';
import { armed } from './timer';
import { halveWindow } from './window';

/** Nanoseconds. Most pauses of a program or a machine are shorter. */
const LEAST_WAIT: u64 = 16_000_000;
/** Where packets are lost. Most turns of an event loop with other things to do are shorter, and so is the way through a switch's full
 * queue. */
const LEAST_WAIT_LOSSY: u64 = 1_000_000;
/** So long after the last loss that is how it is waited. */
const LOSSY_FOR: u64 = 250_000_000;
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
  qp.repeatedAt = 0;
  qp.lossyUntil = 0;
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

/** A packet of either end has certainly been lost, or overtaken. */
export function noteLost(qp: Qp): void {
  qp.lossyUntil = Card.get().now + LOSSY_FOR;
}

function leastWait(qp: Qp): u64 {
  return Card.get().now < qp.lossyUntil ? LEAST_WAIT_LOSSY : LEAST_WAIT;
}

/** By the round trips so far hardly an answer takes longer. */
function usualTime(qp: Qp): u64 {
  return <u64>qp.roundTrip + 4 * <u64>qp.deviation;
}

/** Waits for an answer, if the ACK timer does and will do so longer. */
function awaitAnswer(qp: Qp): void {
  if (qp.roundTrip == 0) return;
  qp.isExcused = false;
  waitUntil(qp, Card.get().now + (max(usualTime(qp), leastWait(qp)) << qp.earlyRepeats));
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
    return waitUntil(qp, now + leastWait(qp));
  }
  qp.earlyRepeats++;
  qp.repeatedAt = now;
  qp.count(Counter.roce_adp_retrans);
  let resume = qp.isProbing ? qp.resumePsn : qp.sendPsn;
  rewind(qp, qp.unackedPsn);
  qp.resumePsn = resume;
  qp.isProbing = true;
  schedule(qp);
}

/** Whether an answer that took so long is one to the repeated packet. Who was only late answers the first one, at any time. */
function isUsual(qp: Qp, time: u64): bool {
  return time >= <u64>(qp.roundTrip >> 1) && time <= usualTime(qp);
}

/** The answer to a repeated packet, or to one behind it. */
export function endProbe(qp: Qp): void {
  qp.isProbing = false;
  if (psnDiff(qp.unackedPsn, qp.sendPsn) <= 0) {
    if (isUsual(qp, Card.get().now - qp.repeatedAt)) noteLost(qp);
    return halveWindow(qp);
  }
  // on from where it stood, which may be in the midst of packets that are repeated
  let isBehind = psnDiff(qp.resumePsn, qp.unackedPsn) < 0;
  rewind(qp, isBehind ? qp.unackedPsn : qp.resumePsn);
  // those on their way have asked
  qp.unasked = 0;
}
