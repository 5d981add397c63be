// Doorbells: how a posting thread tells the card that a queue pair has new work requests, without touching the card's
// own state. The poster sets the flag before it puts the queue pair into the ring. The card clears it after it has
// taken the queue pair out and before it looks at its queues. So every work request is either seen by that look, or
// rings again.

import { QpState } from '../codes';
import { Card } from '../host/card';
import { Qp } from './qp';
import { schedule } from './schedule';
import { flushPosted } from './state';

/** Called by the posting thread after it has advanced the head of a queue. */
export function ringDoorbell(qp: Qp): void {
  if (!qp.setRung(true)) Card.get().doorbells.put(qp.ptr);
}

/** Called by the card: schedules the queue pairs that have rung, or flushes them. */
export function takeDoorbells(): void {
  let doorbells = Card.get().doorbells;
  for (let handle = doorbells.take(); handle != 0; handle = doorbells.take()) {
    let qp = changetype<Qp>(handle);
    qp.setRung(false);
    takeDoorbell(qp);
  }
}

function takeDoorbell(qp: Qp): void {
  let state = qp.state;
  if (state == QpState.RTR || state == QpState.RTS || state == QpState.SQD) return schedule(qp);
  // in RESET and INIT there is nothing to do: it was reset since
  flushPosted(qp);
}
