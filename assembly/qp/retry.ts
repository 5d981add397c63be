// Going back: repeating from a PSN on, at once or after the peer's RNR delay, and giving up (IBTA 9.7.5, 9.9.2).
import { Counter } from '../counters';
import { Card } from '../host/card';
import { WcStatus } from '../limits';
import { rnrDelay } from '../wire/aeth';
import { psnDiff } from '../wire/psn';
import { expireEarly } from './adaptive';
import { failSend } from './complete';
import { expireCongestion } from './congestion';
import { expireCredits } from './credit';
import { Qp } from './qp';
import { schedule } from './schedule';
import { armed } from './timer';
import { halveWindow } from './window';

/** An rnr_retry of 7 means for ever (IBTA 9.7.5.2.8). */
const RNR_FOR_EVER: u32 = 7;

/** All tries are there again: the peer has answered something new. */
export function resetRetries(qp: Qp): void {
  qp.retryLeft = qp.retryCnt;
  qp.rnrLeft = qp.rnrRetry;
  qp.timeouts = 0;
  qp.rnrs = 0;
}

/** Starts the ACK timer anew while an answer is due, else stops it. A timeout of 0 means none. */
export function restart(qp: Qp): void {
  if (qp.timeout == 0 || qp.unackedPsn == qp.wirePsn || qp.rnrDeadline != 0) {
    qp.ackDeadline = 0;
    return;
  }
  qp.ackDeadline = Card.get().now + ((<u64>4096) << qp.timeout);
  armed(qp);
}

/** The next packet to be sent is the one with this PSN, or the first after everything that was acknowledged. */
export function rewind(qp: Qp, psn: u32): void {
  let n = qp.sqTail;
  while (n != qp.sqHead) {
    let wqe = qp.sendWqe(n);
    if (!wqe.isStarted || psnDiff(wqe.lastPsn, psn) >= 0) break;
    n++;
  }
  qp.sqNext = n;
  qp.sendPsn = psn;
  // the first packet asks for an ACK: it opens the window for one more, which shows the peer what else was lost; without
  // it a burst whose end is lost waits for the timer
  qp.unasked = qp.window;
  qp.isProbing = false;
  qp.earlyDeadline = 0;
  qp.timedAt = 0;
}

/** Repeats from `psn` on, unless the tries are used up. */
export function retry(qp: Qp, psn: u32): void {
  if (qp.retryLeft == 0) {
    qp.count(Counter.retry_exceeded_err);
    return failSend(qp, WcStatus.RETRY_EXC_ERR, qp.lastSyndrome, psn);
  }
  qp.retryLeft--;
  halveWindow(qp);
  rewind(qp, psn);
  restart(qp);
  schedule(qp);
}

/** The peer has no receive work request for `psn`: wait as long as it asks, then repeat. */
export function retryAfterRnr(qp: Qp, psn: u32, code: u32): void {
  qp.rnrs++;
  if (qp.rnrRetry != RNR_FOR_EVER) {
    if (qp.rnrLeft == 0) {
      qp.count(Counter.retry_rnr_exceeded_err);
      return failSend(qp, WcStatus.RNR_RETRY_EXC_ERR, qp.lastSyndrome, psn);
    }
    qp.rnrLeft--;
  }
  rewind(qp, psn);
  qp.ackDeadline = 0;
  qp.rnrDeadline = Card.get().now + rnrDelay(code);
  armed(qp);
}

/** One of the deadlines of the queue pair has passed. */
export function expired(qp: Qp): void {
  let now = Card.get().now;
  if (qp.rnrDeadline != 0 && qp.rnrDeadline <= now) {
    qp.rnrDeadline = 0;
    schedule(qp);
  }
  if (qp.ackDeadline != 0 && qp.ackDeadline <= now) {
    qp.ackDeadline = 0;
    qp.timeouts++;
    qp.count(Counter.local_ack_timeout_err);
    retry(qp, qp.unackedPsn);
  }
  expireEarly(qp, now);
  expireCredits(qp, now);
  expireCongestion(qp, now);
  armed(qp);
}
