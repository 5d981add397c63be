// Posting: a work request is described piece by piece into the next free WQE and becomes visible with the commit.
//
// The poster may be another thread than the one that runs the card, one poster for each queue. It writes WQEs, the head of the
// queue, the users of an address handle and the doorbell, and nothing else; what it reads of the queue pair may be old.
// The card looks again when it answers the doorbell.
import { Card } from '../host/card';
import { RecvQueue } from '../host/rq';
import { SendWqe, writePiece } from '../host/wqe';
import { Errno, MAX_MESSAGE, QpState, QpType, SendFlag, WrOpcode } from '../limits';
import { Ah } from './ah';
import { ringDoorbell } from './doorbell';
import { isLocal } from './local';
import { Qp } from './qp';
import { isAtomicWr, isRdAtomic } from './requester';

/** Bit for each operation that a type of queue pair has. */
const UC_OPERATIONS: u32 =
  (1 << WrOpcode.SEND) |
  (1 << WrOpcode.SEND_WITH_IMM) |
  (1 << WrOpcode.RDMA_WRITE) |
  (1 << WrOpcode.RDMA_WRITE_WITH_IMM) |
  (1 << WrOpcode.LOCAL_INV) |
  (1 << WrOpcode.REG_MR) |
  (1 << WrOpcode.BIND_MW);
const UD_OPERATIONS: u32 = (1 << WrOpcode.SEND) | (1 << WrOpcode.SEND_WITH_IMM);
const RC_OPERATIONS: u32 =
  UC_OPERATIONS |
  (1 << WrOpcode.SEND_WITH_INV) |
  (1 << WrOpcode.RDMA_READ) |
  (1 << WrOpcode.ATOMIC_CMP_AND_SWP) |
  (1 << WrOpcode.ATOMIC_FETCH_AND_ADD) |
  (1 << WrOpcode.FLUSH) |
  (1 << WrOpcode.ATOMIC_WRITE);

function operationsOf(type: u32): u32 {
  return type == QpType.RC ? RC_OPERATIONS : type == QpType.UC ? UC_OPERATIONS : UD_OPERATIONS;
}

/** Notes what is wrong with the work request that is being described; the commit tells. */
function spoil(errno: Errno): void {
  let card = Card.get();
  if (card.spoiled == Errno.OK) card.spoiled = errno;
}

/** Room for a send work request, or an Errno: ENOMEM when the queue is full, EINVAL when the state forbids it. */
export function beginSend(qp: Qp, wrId: f64, opcode: u32, flags: u32): Errno {
  if (qp.state < QpState.RTS) return Errno.EINVAL;
  if (qp.sqHead - qp.sqTail > qp.sqMask) return Errno.ENOMEM;
  Card.get().spoiled = Errno.OK;
  let wqe = qp.sendWqe(qp.sqHead);
  memory.fill(wqe.ptr, 0, wqe.pieces - wqe.ptr);
  wqe.wrId = wrId;
  wqe.opcode = opcode;
  wqe.flags = flags & ~(<u32>SendFlag.INLINE);
  return Errno.OK;
}

export function addSendPiece(qp: Qp, ptr: usize, length: u32, lkey: u32): void {
  let wqe = qp.sendWqe(qp.sqHead);
  if (wqe.sgeCount >= qp.maxSendSge || wqe.isInline) return spoil(Errno.EINVAL);
  if (<u64>wqe.length + length > MAX_MESSAGE) return spoil(Errno.EMSGSIZE);
  writePiece(wqe.pieces, wqe.sgeCount++, ptr, length, lkey);
  wqe.length += length;
}

/** Where the caller copies its `length` bytes of inline data to; 0 when they are more than fit. */
export function addInline(qp: Qp, length: u32): usize {
  let wqe = qp.sendWqe(qp.sqHead);
  if (length > qp.maxInline || wqe.sgeCount != 0) {
    spoil(Errno.EINVAL);
    return 0;
  }
  wqe.flags |= SendFlag.INLINE;
  wqe.length = length;
  return wqe.pieces;
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
  let spoiled = Card.get().spoiled;
  if (spoiled != Errno.OK) return spoiled;
  if (qp.type == QpType.UD) return checkDatagram(qp, wqe);
  if (isRdAtomic(opcode) && qp.maxRdAtomic == 0 && qp.state != QpState.ERR) return Errno.EINVAL;
  if (opcode == WrOpcode.ATOMIC_WRITE) return wqe.length == 8 ? Errno.OK : Errno.EINVAL;
  let carriesNothing = opcode == WrOpcode.FLUSH || isLocal(opcode);
  if (carriesNothing) return wqe.sgeCount == 0 && !wqe.isInline ? Errno.OK : Errno.EINVAL;
  if (wqe.isInline && isRdAtomic(opcode)) return Errno.EINVAL;
  if (isAtomicWr(opcode)) return wqe.length == 8 ? Errno.OK : Errno.EINVAL;
  return Errno.OK;
}

/** One packet, to a peer of the same domain. */
function checkDatagram(qp: Qp, wqe: SendWqe): Errno {
  if (wqe.ah == 0 || changetype<Ah>(wqe.ah).pd != qp.pd) return Errno.EINVAL;
  return wqe.length > Card.get().portMtu ? Errno.EMSGSIZE : Errno.OK;
}

/** Room for a receive work request, of the queue pair's own queue. */
export function beginRecv(qp: Qp, wrId: f64): Errno {
  if (qp.state == QpState.RESET || qp.rq.isShared) return Errno.EINVAL;
  return beginShared(qp.rq, wrId);
}

export function beginShared(queue: RecvQueue, wrId: f64): Errno {
  Card.get().spoiled = Errno.OK;
  return queue.begin(wrId);
}

export function addRecvPiece(queue: RecvQueue, ptr: usize, length: u32, lkey: u32): void {
  let errno = queue.addPiece(ptr, length, lkey);
  if (errno != Errno.OK) spoil(errno);
}

export function commitShared(queue: RecvQueue): Errno {
  let spoiled = Card.get().spoiled;
  if (spoiled == Errno.OK) queue.commit();
  return spoiled;
}

export function commitRecv(qp: Qp): Errno {
  let errno = commitShared(qp.rq);
  // in any other state, and while the peer knows of receives, the card finds it when a message comes; a state that changes
  // just now flushes what is visible then
  if (errno == Errno.OK && (qp.state == QpState.ERR || (qp.flowControl && qp.told == 0))) ringDoorbell(qp);
  return errno;
}
