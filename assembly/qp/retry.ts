// Retries: retransmits from a PSN on, at once or after the peer's RNR delay, until the retry counter is exhausted (IBTA
// 9.7.5, 9.9.2).

import { DecisionKind, RetransmitReason, WcStatus, WrOpcode } from '../codes';
import { Counter } from '../counters';
import { Card } from '../host/card';
import { RETRY_INFINITE } from '../limits';
import { psnDiff } from '../wire/psn';
import { isTracingDecisions, recordDecision } from './decisions';
import { Qp } from './qp';
import { rewind } from './rewind';
import { RNR_RETRY_INFINITE, rnrWait } from './rnr';
import { schedule } from './schedule';
import { failSend } from './state';
import { armTimer, restartAckTimer, rttBound } from './timer';
import { halveWindow } from './window';

/** Retransmits from `psn` on; fails when no retry is left. */
export function retry(qp: Qp, psn: u32, reason: RetransmitReason): void {
  if (qp.retryLeft == 0) {
    qp.count(Counter.retry_exceeded_err);
    return failSend(qp, WcStatus.RETRY_EXC_ERR, qp.lastSyndrome, psn);
  }
  if (qp.retryCnt != RETRY_INFINITE) qp.retryLeft--;
  halveWindow(qp);
  sendAgain(qp, psn, reason);
  restartAckTimer(qp);
}

/**
 * The NAK that was answered by a retransmission of the oldest packet has come again, or another response that implies
 * it. Copies of it, and those of packets that were on their way, are ignored. One that is later than a usual answer to
 * the retransmission tells that this was lost too. As it may be forged, it costs no retry, and the ACK timer goes on.
 */
export function retransmitAgain(qp: Qp, reason: RetransmitReason): void {
  let now = Card.get().now;
  if (qp.srtt == 0 || now - qp.retransmittedAt <= rttBound(qp)) return;
  qp.retransmittedAt = now;
  sendAgain(qp, qp.unackedPsn, reason);
}

/** Retransmits from `psn` on, without a retry. */
function sendAgain(qp: Qp, psn: u32, reason: RetransmitReason): void {
  traceRetransmit(qp, psn, reason, qp.retryLeft);
  rewind(qp, psn);
  schedule(qp);
}

/** The peer has no receive WQE for `psn`: retransmits after the delay that it asks for. */
export function retryAfterRnr(qp: Qp, psn: u32, code: u32): void {
  let now = Card.get().now;
  if (qp.rnrs++ == 0) qp.rnrSince = now;
  if (qp.rnrRetry != RNR_RETRY_INFINITE) {
    if (qp.rnrLeft == 0) {
      qp.count(Counter.retry_rnr_exceeded_err);
      return failSend(qp, WcStatus.RNR_RETRY_EXC_ERR, qp.lastSyndrome, psn);
    }
    qp.rnrLeft--;
  }
  // the packet has arrived
  qp.retryLeft = qp.retryCnt;
  traceRetransmit(qp, psn, RetransmitReason.RNR_NAK, qp.rnrLeft);
  rewind(qp, psn);
  qp.ackDeadline = 0;
  qp.rnrDeadline = now + rnrWait(qp, code);
  armTimer(qp);
}

/** Traces a retransmission from `psn` on; a READ of which a part has arrived is resumed. */
function traceRetransmit(qp: Qp, psn: u32, reason: RetransmitReason, retriesLeft: u32): void {
  if (!isTracingDecisions()) return;
  recordDecision(qp, DecisionKind.RETRANSMIT, reason, psn, psnDiff(qp.unsentPsn, psn), retriesLeft);
  let wqe = qp.sendWqe(qp.sqTail);
  if (wqe.opcode == WrOpcode.RDMA_READ && psnDiff(psn, wqe.firstPsn) > 0)
    recordDecision(qp, DecisionKind.READ_RESUMED, reason, psn, psnDiff(psn, wqe.firstPsn), 0);
}
