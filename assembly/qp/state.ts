// The states of a queue pair (IBTA 10.3): what each transition does, and the errors that end a queue pair. `setState`
// is the only writer of the state.
import { DecisionKind, EventType, QpState, QpType, StateReason, WcStatus } from '../codes';
import { Counter } from '../counters';
import { Card } from '../host/card';
import { initAdaptive } from './adaptive';
import { resetCongestion } from './congestion';
import { initCredits } from './credit';
import { recordDecision } from './decisions';
import { flushReceives, flushSends, postSendCqe, releaseAh } from './flush';
import { resetKeepAlive } from './keepalive';
import { Expect, PendingAck, Qp, SentNak } from './qp';
import { freeBuffered } from './reorder';
import { resetResources } from './resource';
import { schedule, unschedule } from './schedule';
import { disarmTimers, restartAckTimer } from './timer';
import { initWindow } from './window';

export function setState(qp: Qp, to: QpState, reason: StateReason): void {
  let from = qp.state;
  if (to != from) recordDecision(qp, DecisionKind.STATE, reason, 0, 0, from | (to << 8));
  qp.state = to;
  if (to == QpState.ERR) {
    if (from == QpState.ERR) return;
    disarmTimers(qp);
    resetCongestion(qp);
    resetKeepAlive(qp);
    freeBuffered(qp);
    qp.pendingAck = PendingAck.NONE;
    qp.activeResources = 0;
    flushSends(qp);
    flushReceives(qp);
    if (qp.rq.isShared) Card.get().events.raise(EventType.QP_LAST_WQE_REACHED, qp.ptr);
  } else if (to == QpState.RESET) {
    resetQp(qp);
  } else if (to == QpState.RTS && from != QpState.RTS) {
    if (from == QpState.RTR && qp.type == QpType.RC) {
      initWindow(qp);
      initAdaptive(qp);
    }
    restartAckTimer(qp);
    schedule(qp);
  } else if (to == QpState.SQE) {
    flushPosted(qp);
    // the unused PSNs of the failed message are free again
    qp.allocPsn = qp.unsentPsn = qp.unackedPsn = qp.sendPsn;
  } else if (to == QpState.SQD) {
    raiseDrained(qp);
  }
}

/** Flushes the work requests that are posted while the queue pair, or its send side, has stopped. */
export function flushPosted(qp: Qp): void {
  if (qp.state != QpState.ERR && qp.state != QpState.SQE) return;
  if (!flushSends(qp)) failOnOverrun(qp);
  if (qp.state == QpState.ERR) flushReceives(qp);
}

/** A completion queue is full and a completion is lost, so the queue pair fails (IBTA 9.9.3, class G). */
export function failOnOverrun(qp: Qp): void {
  if (qp.state == QpState.ERR) return;
  Card.get().events.raise(EventType.QP_FATAL, qp.ptr);
  setState(qp, QpState.ERR, StateReason.CQ_OVERRUN);
}

/** The oldest send work request fails, and the queue pair with it. */
export function failSend(qp: Qp, status: WcStatus, syndrome: u32, psn: u32): void {
  qp.count(Counter.req_cqe_error);
  recordDecision(qp, DecisionKind.SEND_FAILED, status, psn, 0, syndrome);
  if (!postSendCqe(qp, qp.sendWqe(qp.sqTail), status, syndrome, psn)) failOnOverrun(qp);
  if (qp.state == QpState.ERR) return;
  // of an unreliable queue pair only the send side stops (IBTA 10.3.1.7)
  setState(qp, qp.type == QpType.RC ? QpState.ERR : QpState.SQE, StateReason.SEND_FAILED);
}

/** In SQD: raises SQ_DRAINED, if requested, once all started messages are done (IBTA 10.3.1.6). */
export function raiseDrained(qp: Qp): void {
  if (qp.state != QpState.SQD || !qp.isDrainEventWanted || qp.unackedPsn != qp.allocPsn) return;
  qp.isDrainEventWanted = false;
  Card.get().events.raise(EventType.SQ_DRAINED, qp.ptr);
}

/** Resets a queue pair to its initial state: work requests are discarded without completions. */
function resetQp(qp: Qp): void {
  disarmTimers(qp);
  resetCongestion(qp);
  resetKeepAlive(qp);
  freeBuffered(qp);
  unschedule(qp);
  for (; qp.sqTail != qp.sqHead; qp.sqTail++) releaseAh(qp.sendWqe(qp.sqTail));
  qp.sqNext = qp.sqTail;
  qp.hasRecvWqe = false;
  if (!qp.rq.isShared) qp.rq.clear();
  qp.rdAtomicInFlight = 0;
  qp.isNextReadPartInFlight = false;
  qp.isReadRetried = false;
  qp.isNakRetried = false;
  qp.timeouts = 0;
  qp.rnrs = 0;
  qp.rnrNaks = 0;
  qp.lastSyndrome = 0;
  qp.msn = 0;
  qp.expect = Expect.FIRST;
  qp.sentNak = SentNak.NONE;
  qp.isRepetitionDue = false;
  qp.hasReceived = false;
  qp.pendingAck = PendingAck.NONE;
  resetResources(qp);
  initCredits(qp);
  qp.isDrainEventWanted = false;
}
