// Deadlines of queue pairs: a binary heap, earliest on top. A deadline that moves later does not move in the heap until
// it comes to the top, so that restarting the ACK timer with every ACK costs nothing. Heap entries contain the
// deadlines: with thousands of queue pairs, each one that is looked at would have to be fetched from memory.
//   an entry: | deadline u64 | queue pair u32 | unused u32 |, numbered from 1
import { Card } from '../host/card';
import { Qp } from './qp';

export const TIMER_BYTES: u32 = 16;

function ptr(place: u32): usize {
  return Card.get().timers + <usize>place * TIMER_BYTES;
}

function at(place: u32): Qp {
  return changetype<Qp>(load<u32>(ptr(place), 8));
}

function deadlineAt(place: u32): u64 {
  return load<u64>(ptr(place));
}

function put(place: u32, qp: Qp): void {
  store<u64>(ptr(place), qp.timerDeadline);
  store<u32>(ptr(place), qp.ptr, 8);
  qp.timerIndex = place;
}

function move(from: u32, to: u32): void {
  v128.store(ptr(to), v128.load(ptr(from)));
  at(to).timerIndex = to;
}

/** The earlier of two deadlines; 0 = none. */
function earlier(a: u64, b: u64): u64 {
  if (a == 0) return b;
  return b == 0 ? a : min(a, b);
}

/** Returns the earliest deadline of a queue pair; 0 = none. */
function nextDeadline(qp: Qp): u64 {
  let deadline = earlier(earlier(qp.earlyDeadline, qp.nakDeadline), earlier(qp.ackDeadline, qp.rnrDeadline));
  if (qp.deferredDeadline != 0) deadline = earlier(deadline, qp.deferredDeadline);
  if (qp.flowControl) deadline = earlier(deadline, qp.creditDeadline);
  if (qp.rate == 0) return deadline;
  return earlier(deadline, earlier(qp.paceDeadline, earlier(qp.alphaDeadline, qp.rateDeadline)));
}

/** Must be called after a deadline of the queue pair was set. Clearing a deadline needs no call. */
export function armTimer(qp: Qp): void {
  let deadline = nextDeadline(qp);
  if (deadline == 0) return;
  if (qp.timerIndex == 0) {
    qp.timerDeadline = deadline;
    let card = Card.get();
    siftUp(qp, ++card.timerCount);
  } else if (deadline < qp.timerDeadline) {
    qp.timerDeadline = deadline;
    siftUp(qp, qp.timerIndex);
  }
}

/** Restores all retries: the peer has acknowledged something new. */
export function refillRetries(qp: Qp): void {
  qp.retryLeft = qp.retryCnt;
  qp.rnrLeft = qp.rnrRetry;
  qp.timeouts = 0;
  qp.rnrs = 0;
}

/** Returns the ACK timeout: no shorter than the card's minimum, nor than what nearly no round trip exceeds. */
function ackTimeout(qp: Qp): u64 {
  let timeout = (<u64>4096) << qp.timeout;
  let least = Card.get().minAckTimeout;
  return least == 0 ? timeout : max(timeout, max(least, rttBound(qp)));
}

/** Returns a time that nearly no round trip exceeds: SRTT + 4 * RTTVAR; 0 before the first measurement. */
export function rttBound(qp: Qp): u64 {
  return <u64>qp.srtt + 4 * <u64>qp.rttvar;
}

/** Restarts the ACK timer while a response is due, else stops it. A timeout of 0 means none. */
export function restartAckTimer(qp: Qp): void {
  if (qp.timeout == 0 || qp.unackedPsn == qp.unsentPsn || qp.rnrDeadline != 0) {
    qp.ackDeadline = 0;
    return;
  }
  qp.ackDeadline = Card.get().now + ackTimeout(qp);
  armTimer(qp);
}

export function disarmTimers(qp: Qp): void {
  qp.ackDeadline = 0;
  qp.rnrDeadline = 0;
  qp.creditDeadline = 0;
  qp.earlyDeadline = 0;
  qp.nakDeadline = 0;
  qp.deferredDeadline = 0;
  if (qp.timerIndex) remove(qp);
}

/** Returns the deadline on top of the heap, which may be too early; 0 = none. */
export function earliestDeadline(): u64 {
  return Card.get().timerCount ? deadlineAt(1) : 0;
}

/** Takes a queue pair with an expired deadline off the heap; null when there is none. */
export function takeExpired(now: u64): Qp {
  while (Card.get().timerCount) {
    if (deadlineAt(1) > now) break;
    let qp = at(1);
    remove(qp);
    let deadline = nextDeadline(qp);
    if (deadline != 0 && deadline <= now) return qp;
    armTimer(qp);
  }
  return changetype<Qp>(0);
}

function remove(qp: Qp): void {
  let card = Card.get();
  let place = qp.timerIndex;
  qp.timerIndex = 0;
  let last = at(card.timerCount--);
  if (last == qp) return;
  if (place > 1 && deadlineAt(place >> 1) > last.timerDeadline) siftUp(last, place);
  else siftDown(last, place);
}

function siftUp(qp: Qp, place: u32): void {
  for (; place > 1; place >>= 1) {
    if (deadlineAt(place >> 1) <= qp.timerDeadline) break;
    move(place >> 1, place);
  }
  put(place, qp);
}

function siftDown(qp: Qp, place: u32): void {
  let count = Card.get().timerCount;
  for (let child = place * 2; child <= count; child = place * 2) {
    if (child < count && deadlineAt(child + 1) < deadlineAt(child)) child++;
    if (deadlineAt(child) >= qp.timerDeadline) break;
    move(child, place);
    place = child;
  }
  put(place, qp);
}
