// Posting: a work request is described step by step in the next free WQE and becomes visible with the commit.
//
// The posting thread may be another than the card's; there is one for each queue. It writes WQEs, the head of the
// queue, the user count of an address handle and the doorbell, and nothing else. What it reads of the queue pair may be
// stale: the card checks again when it takes the doorbell.

import { Errno, GSI_QPN, QpState, QpType, SendFlag, WrOpcode } from '../codes';
import { Card } from '../host/card';
import { pkeyAt } from '../host/pkey';
import { RecvQueue } from '../host/rq';
import { SendWqe, writeSge } from '../host/wqe';
import { MAX_MESSAGE } from '../limits';
import { Ah } from './ah';
import { ringDoorbell } from './doorbell';
import { Qp } from './qp';
import { isAtomicWr, isLocalOp, isRdAtomic, operationsOf } from './wropcode';

/** Records the first error of the work request that is being described; the commit returns it. */
function failPost(errno: Errno): void {
  let card = Card.get();
  if (card.postErrno == Errno.OK) card.postErrno = errno;
}

/** Starts a send work request. ENOMEM when the queue is full, EINVAL when the state forbids it. */
export function beginSend(qp: Qp, wrId: f64, opcode: u32, flags: u32): Errno {
  if (qp.state < QpState.RTS) return Errno.EINVAL;
  if (qp.sqHead - qp.sqTail > qp.sqMask) return Errno.ENOMEM;
  Card.get().postErrno = Errno.OK;
  let wqe = qp.sendWqe(qp.sqHead);
  memory.fill(wqe.ptr, 0, wqe.sges - wqe.ptr);
  wqe.wrId = wrId;
  wqe.opcode = opcode;
  wqe.flags = flags & ~(<u32>SendFlag.INLINE);
  return Errno.OK;
}

export function addSendSge(qp: Qp, addr: u64, length: u32, lkey: u32): void {
  let wqe = qp.sendWqe(qp.sqHead);
  if (wqe.sgeCount >= qp.maxSendSge || wqe.isInline) return failPost(Errno.EINVAL);
  if (<u64>wqe.length + length > MAX_MESSAGE) return failPost(Errno.EMSGSIZE);
  writeSge(wqe.sges, wqe.sgeCount++, addr, length, lkey);
  wqe.length += length;
}

/** Returns where the caller copies its `length` bytes of inline data to; 0 when they do not fit. */
export function addInline(qp: Qp, length: u32): usize {
  let wqe = qp.sendWqe(qp.sqHead);
  if (length > qp.maxInline || wqe.sgeCount != 0) {
    failPost(Errno.EINVAL);
    return 0;
  }
  wqe.flags |= SendFlag.INLINE;
  wqe.length = length;
  return wqe.sges;
}

export function commitSend(qp: Qp): Errno {
  let wqe = qp.sendWqe(qp.sqHead);
  let errno = checkSend(qp, wqe);
  if (errno != Errno.OK) return errno;
  if (wqe.ah != 0) changetype<Ah>(wqe.ah).use();
  qp.sqHead++;
  ringDoorbell(qp);
  return Errno.OK;
}

function checkSend(qp: Qp, wqe: SendWqe): Errno {
  let opcode = wqe.opcode;
  if (opcode > 31 || !((operationsOf(qp.type) >> opcode) & 1)) return Errno.EOPNOTSUPP;
  let postErrno = Card.get().postErrno;
  if (postErrno != Errno.OK) return postErrno;
  if (qp.type == QpType.UD) return checkDatagram(qp, wqe);
  if (isRdAtomic(opcode) && qp.maxRdAtomic == 0 && qp.state != QpState.ERR) return Errno.EINVAL;
  if (opcode == WrOpcode.ATOMIC_WRITE) return wqe.length == 8 ? Errno.OK : Errno.EINVAL;
  let hasNoData = opcode == WrOpcode.FLUSH || isLocalOp(opcode);
  if (hasNoData) return wqe.sgeCount == 0 && !wqe.isInline ? Errno.OK : Errno.EINVAL;
  if (wqe.isInline && isRdAtomic(opcode)) return Errno.EINVAL;
  if (isAtomicWr(opcode)) return wqe.length == 8 ? Errno.OK : Errno.EINVAL;
  return Errno.OK;
}

/** A datagram is one packet, its address handle is of the same protection domain, and its P_Key in the table. */
function checkDatagram(qp: Qp, wqe: SendWqe): Errno {
  if (wqe.ah == 0 || changetype<Ah>(wqe.ah).pd != qp.pd) return Errno.EINVAL;
  if (qp.qpn == GSI_QPN && pkeyAt(wqe.pkeyIndex) == 0) return Errno.EINVAL;
  return wqe.length > Card.get().portMtu ? Errno.EMSGSIZE : Errno.OK;
}

/** Starts a receive work request in the queue pair's own queue. */
export function beginRecv(qp: Qp, wrId: f64): Errno {
  if (qp.state == QpState.RESET || qp.rq.isShared) return Errno.EINVAL;
  return beginSrqRecv(qp.rq, wrId);
}

export function beginSrqRecv(queue: RecvQueue, wrId: f64): Errno {
  Card.get().postErrno = Errno.OK;
  return queue.begin(wrId);
}

export function addRecvSge(queue: RecvQueue, addr: u64, length: u32, lkey: u32): void {
  let errno = queue.addSge(addr, length, lkey);
  if (errno != Errno.OK) failPost(errno);
}

export function commitSrqRecv(queue: RecvQueue): Errno {
  let postErrno = Card.get().postErrno;
  if (postErrno == Errno.OK) queue.commit();
  return postErrno;
}

export function commitRecv(qp: Qp): Errno {
  let errno = commitSrqRecv(qp.rq);
  // in other states, and while the peer has credits, the card finds the receive when a message arrives; a concurrent
  // state change flushes what is visible then
  if (errno == Errno.OK && (qp.state == QpState.ERR || (qp.flowControl && qp.advertised == 0))) ringDoorbell(qp);
  return errno;
}
