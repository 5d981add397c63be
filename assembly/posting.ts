// The exports for posting work requests (begin, describe, commit) and for polling completions and events. A work
// request is invisible to the card before the commit.
//
// The application's thread may call them while another thread runs the card's turns: every queue has one producer and
// one consumer, which see each other through cursors. The application may use one thread only: two threads may not post
// to the same queue, poll the same completion queue, or describe any work requests at the same time.

import { Errno } from './codes';
import { setErrno, u64Of } from './errno';
import { Card } from './host/card';
import { Cq } from './host/cq';
import { RecvQueue } from './host/rq';
import { SendWqe } from './host/wqe';
import {
  addInline,
  addRecvSge,
  addSendSge,
  beginRecv,
  beginSend,
  beginSrqRecv,
  commitRecv,
  commitSend,
  commitSrqRecv,
} from './qp/post';
import { Qp } from './qp/qp';
import { returnRecv } from './qp/quota';

/** Starts a send work request. Returns false with lastErrno() ENOMEM (queue full) or EINVAL (state). */
export function sqBegin(qp: usize, wrId: f64, opcode: u32, flags: u32): bool {
  return setErrno(beginSend(changetype<Qp>(qp), wrId, opcode, flags)) == Errno.OK;
}
/** Adds an SGE of local memory, at a place (host/place). */
export function sqSge(qp: usize, addrHigh: u32, addrLow: u32, length: u32, lkey: u32): void {
  addSendSge(changetype<Qp>(qp), u64Of(addrHigh, addrLow), length, lkey);
}
/**
 * Makes the work request inline instead of adding SGEs. Returns where to copy `length` bytes to, or 0 if `length` is
 * more than maxInline.
 */
export function sqInline(qp: usize, length: u32): usize {
  return addInline(changetype<Qp>(qp), length);
}
export function sqRemote(qp: usize, vaHigh: u32, vaLow: u32, rkey: u32): void {
  let wqe = stagedSendWqe(qp);
  wqe.va = u64Of(vaHigh, vaLow);
  wqe.rkey = rkey;
}
export function sqAtomic(qp: usize, compareAddHigh: u32, compareAddLow: u32, swapHigh: u32, swapLow: u32): void {
  let wqe = stagedSendWqe(qp);
  wqe.compareAdd = u64Of(compareAddHigh, compareAddLow);
  wqe.swap = u64Of(swapHigh, swapLow);
}
/** Sets the immediate data (the four bytes in wire order, read as little endian) or the key to invalidate. */
export function sqImm(qp: usize, value: u32): void {
  stagedSendWqe(qp).imm = value;
}
/** FLUSH: sets the number of bytes from the remote address on, and FlushPlacement | FlushSelectivity << 4. */
export function sqFlush(qp: usize, length: u32, what: u32): void {
  let wqe = stagedSendWqe(qp);
  wqe.length = length;
  wqe.imm = what;
}
/**
 * BIND_MW: binds the memory window whose key has the index of `rkey` to `length` bytes of the region with this local
 * key, from its address va on. The tag of `rkey` becomes the tag of the window's key.
 */
export function sqBind(qp: usize, rkey: u32, lkey: u32, vaHigh: u32, vaLow: u32, length: u32, access: u32): void {
  let wqe = stagedSendWqe(qp);
  wqe.rkey = rkey;
  wqe.imm = lkey;
  wqe.va = u64Of(vaHigh, vaLow);
  wqe.length = length;
  wqe.access = access;
}
/** REG_MR: registers the memory at a place (host/place) with the fast region whose key has the index of `rkey`. */
export function sqRegister(
  qp: usize,
  rkey: u32,
  placeHigh: u32,
  placeLow: u32,
  iovaHigh: u32,
  iovaLow: u32,
  length: u32,
  access: u32,
): void {
  let wqe = stagedSendWqe(qp);
  wqe.rkey = rkey;
  wqe.memory = u64Of(placeHigh, placeLow);
  wqe.va = u64Of(iovaHigh, iovaLow);
  wqe.length = length;
  wqe.access = access;
}
/**
 * Sets the destination of a datagram.
 * @param pkeyIndex queue pair 1 only: index of the P_Key to send; others send their own
 */
export function sqDatagram(qp: usize, ah: usize, qpn: u32, qkey: u32, pkeyIndex: u32): void {
  let wqe = stagedSendWqe(qp);
  wqe.ah = ah;
  wqe.destQpn = qpn;
  wqe.qkey = qkey;
  wqe.pkeyIndex = pkeyIndex;
}
/**
 * EINVAL: too many SGEs, atomic not of 8 bytes ...; EMSGSIZE: over 2 GiB; EOPNOTSUPP: opcode not of this queue pair
 * type.
 */
export function sqCommit(qp: usize): u32 {
  return commitSend(changetype<Qp>(qp));
}
export function rqBegin(qp: usize, wrId: f64): bool {
  return setErrno(beginRecv(changetype<Qp>(qp), wrId)) == Errno.OK;
}
export function rqSge(qp: usize, addrHigh: u32, addrLow: u32, length: u32, lkey: u32): void {
  addRecvSge(changetype<Qp>(qp).rq, u64Of(addrHigh, addrLow), length, lkey);
}
export function rqCommit(qp: usize): u32 {
  return commitRecv(changetype<Qp>(qp));
}
export function srqBegin(srq: usize, wrId: f64): bool {
  return setErrno(beginSrqRecv(changetype<RecvQueue>(srq), wrId)) == Errno.OK;
}
export function srqSge(srq: usize, addrHigh: u32, addrLow: u32, length: u32, lkey: u32): void {
  addRecvSge(changetype<RecvQueue>(srq), u64Of(addrHigh, addrLow), length, lkey);
}
export function srqCommit(srq: usize): u32 {
  return commitSrqRecv(changetype<RecvQueue>(srq));
}
/** Returns a receive WQE to the queue pair's quota of its shared receive queue. */
export function qpRecvReturn(qp: usize): void {
  returnRecv(changetype<Qp>(qp));
}
/**
 * Returns whether a doorbell is pending: work requests were posted that the card has not looked at yet, a turn is due.
 */
export function isDoorbellRung(): bool {
  return !Card.get().doorbells.isEmpty;
}

/**
 * Requests one COMPLETION event for the next completion (or the next solicited or failed one). Completions that are
 * already pending raise none: call cqPeek afterwards.
 */
export function cqArm(cq: usize, solicitedOnly: bool): void {
  changetype<Cq>(cq).arm(solicitedOnly);
}
/** Returns whether no event was raised since it was armed. */
export function cqIsArmed(cq: usize): bool {
  return changetype<Cq>(cq).isArmed;
}
/** Returns the oldest completion or 0; cqPop removes it. */
export function cqPeek(cq: usize): usize {
  return changetype<Cq>(cq).peek();
}
export function cqPop(cq: usize): void {
  changetype<Cq>(cq).pop();
}
export function cqOverrun(cq: usize): bool {
  return changetype<Cq>(cq).isOverrun;
}
/** Returns the oldest event or 0; eventPop removes it. */
export function eventPeek(): usize {
  return Card.get().events.peek();
}
/** @param event the return value of `eventPeek` */
export function eventPop(event: usize): void {
  Card.get().events.pop(event);
}

/** Returns the send work request that is being described. */
function stagedSendWqe(qp: usize): SendWqe {
  let pair = changetype<Qp>(qp);
  return pair.sendWqe(pair.sqHead);
}
