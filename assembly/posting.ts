// The exports for posting work requests - begin, describe, commit - and for taking completions and events. Nothing is visible
// to the card before the commit.
//
// The user's thread may call them while another thread takes the card's turns: every queue has one side that fills it and one
// that empties it, and cursors tell the other side. Each has one thread of the user's at most: two may not post to one queue
// at a time, nor take from one completion queue, nor describe work requests at all.
import { join, noted } from './calls';
import { Card } from './host/card';
import { Cq } from './host/cq';
import { RecvQueue } from './host/rq';
import { SendWqe } from './host/wqe';
import { Errno } from './limits';
import {
  addInline,
  addRecvPiece,
  addSendPiece,
  beginRecv,
  beginSend,
  beginShared,
  commitRecv,
  commitSend,
  commitShared,
} from './qp/post';
import { Qp } from './qp/qp';

/** Room for a send work request; false with lastErrno() ENOMEM (queue full) or EINVAL (state). */
export function sqBegin(qp: usize, wrId: f64, opcode: u32, flags: u32): bool {
  return noted(beginSend(changetype<Qp>(qp), wrId, opcode, flags)) == Errno.OK;
}
/** Adds a piece of local memory. */
export function sqSge(qp: usize, ptr: usize, length: u32, lkey: u32): void {
  addSendPiece(changetype<Qp>(qp), ptr, length, lkey);
}
/** Instead of pieces: where to copy `length` bytes of inline data to; 0 if more than maxInline. */
export function sqInline(qp: usize, length: u32): usize {
  return addInline(changetype<Qp>(qp), length);
}
export function sqRemote(qp: usize, vaHigh: u32, vaLow: u32, rkey: u32): void {
  let wqe = staged(qp);
  wqe.va = join(vaHigh, vaLow);
  wqe.rkey = rkey;
}
export function sqAtomic(qp: usize, compareAddHigh: u32, compareAddLow: u32, swapHigh: u32, swapLow: u32): void {
  let wqe = staged(qp);
  wqe.compareAdd = join(compareAddHigh, compareAddLow);
  wqe.swap = join(swapHigh, swapLow);
}
/** Immediate (the four bytes in memory order of the wire, read as little endian) or the key to invalidate. */
export function sqImm(qp: usize, value: u32): void {
  staged(qp).imm = value;
}
/** FLUSH: how many bytes from the remote address on, and FlushPlacement | FlushSelectivity << 4. */
export function sqFlush(qp: usize, length: u32, what: u32): void {
  let wqe = staged(qp);
  wqe.length = length;
  wqe.imm = what;
}
/** BIND_MW: opens the window whose key is `rkey` but for the tag, which becomes that of `rkey`, on `length` bytes of the region
 * with this local key from its address va on. */
export function sqBind(qp: usize, rkey: u32, lkey: u32, vaHigh: u32, vaLow: u32, length: u32, access: u32): void {
  let wqe = staged(qp);
  wqe.rkey = rkey;
  wqe.imm = lkey;
  wqe.va = join(vaHigh, vaLow);
  wqe.length = length;
  wqe.access = access;
}
/** REG_MR: registers memory of the card with the fast region whose key is `rkey` but for the tag. */
export function sqRegister(
  qp: usize,
  rkey: u32,
  ptr: usize,
  iovaHigh: u32,
  iovaLow: u32,
  length: u32,
  access: u32,
): void {
  let wqe = staged(qp);
  wqe.rkey = rkey;
  wqe.memory = ptr;
  wqe.va = join(iovaHigh, iovaLow);
  wqe.length = length;
  wqe.access = access;
}
/** Where a datagram goes. */
export function sqDatagram(qp: usize, ah: usize, qpn: u32, qkey: u32): void {
  let wqe = staged(qp);
  wqe.ah = ah;
  wqe.destQpn = qpn;
  wqe.qkey = qkey;
}
/** EINVAL: too many pieces, atomic not of 8 bytes ...; EMSGSIZE: over 2 GiB; EOPNOTSUPP: opcode not of this type of queue pair. */
export function sqCommit(qp: usize): u32 {
  return commitSend(changetype<Qp>(qp));
}
export function rqBegin(qp: usize, wrId: f64): bool {
  return noted(beginRecv(changetype<Qp>(qp), wrId)) == Errno.OK;
}
export function rqSge(qp: usize, ptr: usize, length: u32, lkey: u32): void {
  addRecvPiece(changetype<Qp>(qp).rq, ptr, length, lkey);
}
export function rqCommit(qp: usize): u32 {
  return commitRecv(changetype<Qp>(qp));
}
export function srqBegin(srq: usize, wrId: f64): bool {
  return noted(beginShared(changetype<RecvQueue>(srq), wrId)) == Errno.OK;
}
export function srqSge(srq: usize, ptr: usize, length: u32, lkey: u32): void {
  addRecvPiece(changetype<RecvQueue>(srq), ptr, length, lkey);
}
export function srqCommit(srq: usize): u32 {
  return commitShared(changetype<RecvQueue>(srq));
}
/** Something was posted that the card has not looked at yet: a turn is due. */
export function isRung(): bool {
  return !Card.get().doorbells.isEmpty;
}

/** Asks for one COMPLETION event at the next completion (or the next solicited or failed one). What came before does not
 * ring: look with cqPeek afterwards. */
export function cqArm(cq: usize, solicitedOnly: bool): void {
  changetype<Cq>(cq).arm(solicitedOnly);
}
/** Whether it has not rung since it was armed. */
export function cqIsArmed(cq: usize): bool {
  return changetype<Cq>(cq).isArmed;
}
/** Oldest completion or 0; cqPop forgets it. */
export function cqPeek(cq: usize): usize {
  return changetype<Cq>(cq).peek();
}
export function cqPop(cq: usize): void {
  changetype<Cq>(cq).pop();
}
export function cqOverrun(cq: usize): bool {
  return changetype<Cq>(cq).isOverrun;
}
/** Oldest event or 0; eventPop forgets it. */
export function eventPeek(): usize {
  return Card.get().events.peek();
}
/** @param event what `eventPeek` has answered */
export function eventPop(event: usize): void {
  Card.get().events.pop(event);
}

/** The send work request that is being described. */
function staged(qp: usize): SendWqe {
  let pair = changetype<Qp>(qp);
  return pair.sendWqe(pair.sqHead);
}
