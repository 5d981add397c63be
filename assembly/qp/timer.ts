// Deadlines of queue pairs: a binary heap, earliest on top. A deadline that moves later leaves its place alone and is put
// right when it comes up, so that restarting the ACK timer with every ACK costs nothing.
import { Card } from '../host/card';
import { Qp } from './qp';

function at(place: u32): Qp {
  return changetype<Qp>(load<u32>(Card.get().timers + ((<usize>place) << 2)));
}

function put(place: u32, qp: Qp): void {
  store<u32>(Card.get().timers + ((<usize>place) << 2), qp.ptr);
  qp.timerPlace = place;
}

/** The earlier of two deadlines; 0 = none. */
function earlier(a: u64, b: u64): u64 {
  if (a == 0) return b;
  return b == 0 ? a : min(a, b);
}

/** When the queue pair next wants to be looked at. */
function wanted(qp: Qp): u64 {
  let deadline = earlier(qp.creditDeadline, earlier(qp.ackDeadline, qp.rnrDeadline));
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
  qp.rate = 0;
  if (qp.timerPlace) remove(qp);
}

/** The earliest place in the heap; it may be early. 0 = none. */
export function earliest(): u64 {
  return Card.get().timerCount ? at(1).timerDeadline : 0;
}

/** A queue pair one of whose deadlines has passed, off the heap; null when there is none. */
export function takeExpired(now: u64): Qp {
  while (Card.get().timerCount) {
    let qp = at(1);
    if (qp.timerDeadline > now) break;
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
  if (place > 1 && at(place >> 1).timerDeadline > last.timerDeadline) rise(last, place);
  else sink(last, place);
}

function rise(qp: Qp, place: u32): void {
  for (; place > 1; place >>= 1) {
    let parent = at(place >> 1);
    if (parent.timerDeadline <= qp.timerDeadline) break;
    put(place, parent);
  }
  put(place, qp);
}

function sink(qp: Qp, place: u32): void {
  let count = Card.get().timerCount;
  for (let child = place * 2; child <= count; child = place * 2) {
    if (child < count && at(child + 1).timerDeadline < at(child).timerDeadline) child++;
    let below = at(child);
    if (below.timerDeadline >= qp.timerDeadline) break;
    put(place, below);
    place = child;
  }
  put(place, qp);
}
