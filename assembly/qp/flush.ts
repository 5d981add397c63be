// Writes completion queue entries, and flushes the work requests of a queue pair that has stopped. Nothing here changes
// the state: the caller acts on a full completion queue.
import { SendFlag, WcOpcode, WcStatus } from '../codes';
import { Card } from '../host/card';
import { Cqe } from '../host/cqe';
import { SendWqe } from '../host/wqe';
import { Ah } from './ah';
import { Qp } from './qp';
import { wcOpcode } from './wropcode';

export function fillCqe(cqe: Cqe, qp: Qp, wrId: f64, status: WcStatus): void {
  cqe.wrId = wrId;
  cqe.status = status;
  cqe.qpn = qp.qpn;
  cqe.qp = qp.ptr;
  cqe.timeouts = qp.timeouts;
  cqe.rnrs = qp.rnrs;
}

/** Releases the address handle of a send work request that is done. */
export function releaseAh(wqe: SendWqe): void {
  if (wqe.ah != 0) changetype<Ah>(wqe.ah).release();
}

/**
 * Completes a send work request. The WQE belongs to the posting thread again when the tail has passed it, so an
 * application that sees the completion also finds the room. Returns false when the completion queue is full and the
 * completion is lost.
 */
export function postSendCqe(qp: Qp, wqe: SendWqe, status: WcStatus, syndrome: u32, psn: u32): bool {
  releaseAh(wqe);
  if (status == WcStatus.SUCCESS && !qp.signalAll && !(wqe.flags & SendFlag.SIGNALED)) {
    qp.sqTail++;
    return true;
  }
  let cqe = qp.sendCq.reserve();
  if (changetype<usize>(cqe) == 0) {
    qp.sqTail++;
    return false;
  }
  fillCqe(cqe, qp, wqe.wrId, status);
  cqe.opcode = wcOpcode(wqe.opcode);
  cqe.byteLen = wqe.length;
  cqe.syndrome = syndrome;
  cqe.psn = psn;
  qp.sqTail++;
  qp.sendCq.commit(status != WcStatus.SUCCESS);
  return true;
}

/** Takes a receive WQE for the arriving message, unless one is taken already. */
export function takeRecvWqe(qp: Qp): void {
  if (qp.hasRecvWqe) return;
  qp.rq.take(qp.recvWqe, Card.get().events);
  qp.recvTaken++;
  qp.hasRecvWqe = true;
}

/**
 * Completes all pending send work requests with WR_FLUSH_ERR, in order of posting. Returns false when a completion was
 * lost.
 */
export function flushSends(qp: Qp): bool {
  let complete = true;
  while (qp.sqTail != qp.sqHead)
    if (!postSendCqe(qp, qp.sendWqe(qp.sqTail), WcStatus.WR_FLUSH_ERR, 0, 0)) complete = false;
  qp.sqNext = qp.sqHead;
  return complete;
}

/** Completes receive work requests with WR_FLUSH_ERR; those of a shared queue stay posted (IBTA 10.2.9.2). */
export function flushReceives(qp: Qp): void {
  if (qp.hasRecvWqe) flushRecvWqe(qp);
  if (qp.rq.isShared) return;
  while (!qp.rq.isEmpty) {
    takeRecvWqe(qp);
    flushRecvWqe(qp);
  }
}

function flushRecvWqe(qp: Qp): void {
  qp.hasRecvWqe = false;
  let cqe = qp.recvCq.reserve();
  if (changetype<usize>(cqe) == 0) return;
  fillCqe(cqe, qp, qp.recvWqe.wrId, WcStatus.WR_FLUSH_ERR);
  cqe.opcode = WcOpcode.RECV;
  qp.recvCq.commit(true);
}
