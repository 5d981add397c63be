// The list of queue pairs that may have something to send, in the order of their turns.
import { Card } from '../host/card';
import { Qp } from './qp';

export function schedule(qp: Qp): void {
  if (qp.isReady) return;
  let card = Card.get();
  qp.isReady = true;
  qp.nextReady = 0;
  if (card.readyLast) changetype<Qp>(card.readyLast).nextReady = qp.ptr;
  else card.readyFirst = qp.ptr;
  card.readyLast = qp.ptr;
}

/** Takes the next queue pair off the list; null when the list is empty. */
export function takeReady(): Qp {
  let card = Card.get();
  let qp = changetype<Qp>(card.readyFirst);
  if (qp.ptr == 0) return qp;
  card.readyFirst = qp.nextReady;
  if (card.readyFirst == 0) card.readyLast = 0;
  qp.isReady = false;
  return qp;
}

/** Takes a queue pair that is being reset or destroyed off the list. */
export function unschedule(qp: Qp): void {
  if (!qp.isReady) return;
  let card = Card.get();
  let previous: usize = 0;
  for (let at = card.readyFirst; at != qp.ptr; at = changetype<Qp>(at).nextReady) previous = at;
  if (previous) changetype<Qp>(previous).nextReady = qp.nextReady;
  else card.readyFirst = qp.nextReady;
  if (card.readyLast == qp.ptr) card.readyLast = previous;
  qp.isReady = false;
}
