// Deadlines of queue pairs: a binary heap, earliest on top. A deadline that moves later leaves its place alone and is put
// right when it comes up, so that restarting the ACK timer with every ACK costs nothing. Places have their deadlines beside
// them: with thousands of queue pairs, each one that is looked at would have to be fetched from far away.
//   a place: | deadline u64 | queue pair u32 | unused u32 |, numbered from 1
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
  qp.timerPlace = place;
}

function move(from: u32, to: u32): void {
  v128.store(ptr(to), v128.load(ptr(from)));
  at(to).timerPlace = to;
}

/** The earlier of two deadlines; 0 = none. */
function earlier(a: u64, b: u64): u64 {
  if (a == 0) return b;
  return b == 0 ? a : min(a, b);
}

/** When the queue pair next wants to be looked at. */
function wanted(qp: Qp): u64 {
  let deadline = earlier(qp.earlyDeadline, earlier(qp.ackDeadline, qp.rnrDeadline));
  if (qp.flowControl) deadline = earlier(deadline, qp.creditDeadline);
  if (qp.rate == 0) return deadline;
  return earlier(deadline, earlier(qp.paceDeadline, earlier(qp.alphaDeadline, qp.rateDeadline)));
}

/** To be called after a deadline of the queue pair was set. Stopping one needs no call. */
export function armed(qp: Qp): void {
  let deadline = wanted(qp);
  if (deadline == 0) return;
  if (qp.timerPlace == 0) {
    qp.timerDeadline = deadline;
    let card = Card.get();
    rise(qp, ++card.timerCount);
  } else if (deadline < qp.timerDeadline) {
    qp.timerDeadline = deadline;
    rise(qp, qp.timerPlace);
  }
}

export function disarm(qp: Qp): void {
  qp.ackDeadline = 0;
  qp.rnrDeadline = 0;
  qp.creditDeadline = 0;
  qp.earlyDeadline = 0;
  if (qp.timerPlace) remove(qp);
}

/** The earliest place in the heap; it may be early. 0 = none. */
export function earliest(): u64 {
  return Card.get().timerCount ? deadlineAt(1) : 0;
}

/** A queue pair one of whose deadlines has passed, off the heap; null when there is none. */
export function takeExpired(now: u64): Qp {
  while (Card.get().timerCount) {
    if (deadlineAt(1) > now) break;
    let qp = at(1);
    remove(qp);
    let deadline = wanted(qp);
    if (deadline != 0 && deadline <= now) return qp;
    armed(qp);
  }
  return changetype<Qp>(0);
}

function remove(qp: Qp): void {
  let card = Card.get();
  let place = qp.timerPlace;
  qp.timerPlace = 0;
  let last = at(card.timerCount--);
  if (last == qp) return;
  if (place > 1 && deadlineAt(place >> 1) > last.timerDeadline) rise(last, place);
  else sink(last, place);
}

function rise(qp: Qp, place: u32): void {
  for (; place > 1; place >>= 1) {
    if (deadlineAt(place >> 1) <= qp.timerDeadline) break;
    move(place >> 1, place);
  }
  put(place, qp);
}

function sink(qp: Qp, place: u32): void {
  let count = Card.get().timerCount;
  for (let child = place * 2; child <= count; child = place * 2) {
    if (child < count && deadlineAt(child + 1) < deadlineAt(child)) child++;
    if (deadlineAt(child) >= qp.timerDeadline) break;
    move(child, place);
    place = child;
  }
  put(place, qp);
}
