// Dispatches expired deadlines to the timers of their queue pairs.
import { RetransmitReason } from '../codes';
import { Counter } from '../counters';
import { Card } from '../host/card';
import { expireEarly } from './adaptive';
import { expireCongestion } from './congestion';
import { expireCreditWait } from './credit';
import { expireDeferredAck } from './deferredack';
import { Qp } from './qp';
import { retry } from './retry';
import { schedule } from './schedule';
import { expireNakWait } from './seqnak';
import { armTimer, takeExpired } from './timer';

export function expireTimers(now: u64): void {
  Card.get().now = now;
  for (let qp = takeExpired(now); qp.ptr != 0; qp = takeExpired(now)) expireQp(qp);
}

/** Handles the deadlines of a queue pair of which at least one has passed. */
function expireQp(qp: Qp): void {
  let now = Card.get().now;
  if (qp.rnrDeadline != 0 && qp.rnrDeadline <= now) {
    qp.rnrDeadline = 0;
    schedule(qp);
  }
  if (qp.ackDeadline != 0 && qp.ackDeadline <= now) {
    qp.ackDeadline = 0;
    qp.timeouts++;
    qp.isNakRetried = false;
    qp.count(Counter.local_ack_timeout_err);
    retry(qp, qp.unackedPsn, RetransmitReason.ACK_TIMEOUT);
  }
  expireNakWait(qp, now);
  expireEarly(qp, now);
  expireDeferredAck(qp, now);
  expireCreditWait(qp, now);
  expireCongestion(qp, now);
  armTimer(qp);
}
