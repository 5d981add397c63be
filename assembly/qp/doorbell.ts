// Doorbells: how a poster tells the card that a queue pair has new work requests, without touching anything that the card
// keeps in order. The flag goes up before the queue pair is put in the ring, and down after it was taken out and before the
// card looks at its queues: whatever was posted is either seen by that look, or has rung once more.
import { Card } from '../host/card';
import { QpState } from '../limits';
import { flushReceives, flushSends } from './complete';
import { Qp } from './qp';
import { schedule } from './schedule';

/** For the poster, after the head of a queue has moved. */
export function ringDoorbell(qp: Qp): void {
  if (!qp.setRung(true)) Card.get().doorbells.put(qp.ptr);
}

/** For the card: what has rung gets its turn to send, or is flushed. */
export function answerDoorbells(): void {
  let doorbells = Card.get().doorbells;
  for (let handle = doorbells.take(); handle != 0; handle = doorbells.take()) {
    let qp = changetype<Qp>(handle);
    qp.setRung(false);
    answer(qp);
  }
}

function answer(qp: Qp): void {
  let state = qp.state;
  if (state == QpState.RTR || state == QpState.RTS || state == QpState.SQD) return schedule(qp);
  // before that: it was reset since
  if (state == QpState.ERR || state == QpState.SQE) flushSends(qp);
  if (state == QpState.ERR) flushReceives(qp);
}
