// The requester: makes request packets from send work requests (IBTA 9.7.2, 9.7.3). Nothing that was sent is kept: a packet
// that has to be repeated is made again from the work request and the registered memory, by its PSN.
import { Counter } from '../counters';
import { Card } from '../host/card';
import { arePiecesLocal, gather, SendWqe } from '../host/wqe';
import { Access, QpState, QpType, Quirk, WcStatus, WrOpcode } from '../limits';
import { AtomicEth } from '../wire/atomiceth';
import { BTH_BYTES, Bth } from '../wire/bth';
import { FETH_BYTES, Feth } from '../wire/feth';
import { writeRxeFlushIcrc } from '../wire/icrc';
import { Ieth } from '../wire/ieth';
import { ImmDt } from '../wire/immdt';
import { hasImm, hasInvalidate, headerBytes, isFirst, isLast, isSend, isWrite, Opcode } from '../wire/opcode';
import { packetCount, psnAdd, psnDiff } from '../wire/psn';
import { Reth } from '../wire/reth';
import { noteAsked } from './adaptive';
import { failSend, retireSend } from './complete';
import { isHeldUp, noteSent } from './congestion';
import { awaitsRoom, hasCredit, noteMessage, noteStarted } from './credit';
import { executeLocal, isLocal } from './local';
import { Qp } from './qp';
import { restart } from './retry';
import { reportDrained } from './state';

/** What makes an opcode of a reliable connection one of an unreliable connection. */
const UC_CLASS: u32 = 0x20;

/** A request that is answered with a response of its own: READ, atomic, ATOMIC WRITE, FLUSH. Their number is limited. */
export function isRdAtomic(opcode: u32): bool {
  return opcode == WrOpcode.RDMA_READ || isAtomicWr(opcode) || isBlankWr(opcode);
}

/** Answered with a READ response without data. */
export function isBlankWr(opcode: u32): bool {
  return opcode == WrOpcode.FLUSH || opcode == WrOpcode.ATOMIC_WRITE;
}

export function isAtomicWr(opcode: u32): bool {
  return opcode == WrOpcode.ATOMIC_CMP_AND_SWP || opcode == WrOpcode.ATOMIC_FETCH_AND_ADD;
}

/** Writes the next request packet to `frame`; answers its length, 0 when none may be sent now. */
export function nextRequest(qp: Qp, frame: usize): u32 {
  if (qp.rnrDeadline != 0) return 0;
  while (qp.sqNext != qp.sqHead && (qp.state == QpState.RTS || qp.state == QpState.SQD)) {
    let wqe = qp.sendWqe(qp.sqNext);
    if (isLocal(wqe.opcode)) {
      if (!executeLocal(qp, wqe)) return 0;
      continue;
    }
    // while packets are repeated, those in flight are counted from the oldest one without answer all the same
    let room: u32 = qp.isProbing ? 1 : qp.window;
    if (qp.type == QpType.RC && <u32>psnDiff(qp.sendPsn, qp.unackedPsn) >= room) return 0;
    if (isHeldUp(qp)) return 0;
    let isFresh = !wqe.isStarted;
    if (isFresh && !start(qp, wqe)) return 0;
    if (awaitsRoom(qp, wqe)) return 0;
    if (wqe.opcode == WrOpcode.RDMA_READ && !mayAsk(qp, wqe)) return 0;
    let bytes = build(qp, wqe, frame, isFresh);
    noteSent(qp, bytes);
    return bytes;
  }
  return 0;
}

/** Gives a work request its PSNs; false when it has to wait. */
function start(qp: Qp, wqe: SendWqe): bool {
  if (qp.state == QpState.SQD) return false;
  if (wqe.isFenced && qp.rdAtomicInFlight != 0) return false;
  if (isRdAtomic(wqe.opcode)) {
    // posted before the limit became 0 in SQD, it would wait for ever
    if (qp.maxRdAtomic == 0) return failInTurn(qp, WcStatus.LOC_QP_OP_ERR);
    if (qp.rdAtomicInFlight >= qp.maxRdAtomic) return false;
  }
  let right: u32 = wqe.opcode == WrOpcode.RDMA_READ || isAtomicWr(wqe.opcode) ? Access.LOCAL_WRITE : 0;
  if (!wqe.isInline && !arePiecesLocal(Card.get().keys, qp.pd, wqe.pieces, wqe.sgeCount, right))
    return failInTurn(qp, WcStatus.LOC_PROT_ERR);
  if (!hasCredit(qp, wqe)) return false;
  let packets = isBlankWr(wqe.opcode) ? 1 : packetCount(wqe.length, qp.mtu);
  wqe.firstPsn = qp.nextPsn;
  wqe.lastPsn = psnAdd(qp.nextPsn, packets - 1);
  qp.nextPsn = psnAdd(qp.nextPsn, packets);
  wqe.isStarted = true;
  noteStarted(qp, wqe);
  if (isRdAtomic(wqe.opcode)) qp.rdAtomicInFlight++;
  return true;
}

/** Whether the next part of a READ may be asked for, and notes how far it goes: the answer is data in flight as our own is,
 * and may not be more than the window. At most two parts at a time, the second one only if the peer has another resource for
 * it, so that an answer need not end before the next one begins. */
function mayAsk(qp: Qp, wqe: SendWqe): bool {
  // the peer may know a part as one request: what is asked again ends where it ended before
  if (wqe.isAsked && psnDiff(qp.sendPsn, wqe.askedPsn) <= 0) return true;
  let inFlight = <u32>psnDiff(qp.sendPsn, qp.unackedPsn);
  let isAhead = wqe.isAsked && inFlight != 0;
  if (isAhead && (psnDiff(qp.unackedPsn, wqe.partPsn) < 0 || qp.rdAtomicInFlight >= qp.maxRdAtomic)) return false;
  let room = qp.window - inFlight;
  let left = ((wqe.lastPsn - qp.sendPsn) & 0xffffff) + 1;
  if (room < min(left, qp.window >> 1)) return false;
  if (wqe.isAsked) noteMessage(qp);
  if (isAhead) {
    qp.isPartAhead = true;
    qp.rdAtomicInFlight++;
  }
  wqe.isAsked = true;
  wqe.askedPsn = psnAdd(qp.sendPsn, min(left, room) - 1);
  if (wqe.askedPsn != wqe.lastPsn) wqe.isSplit = true;
  if (wqe.isSplit) wqe.partPsn = qp.sendPsn;
  return true;
}

/** Packets of the answer to the part of a READ that is asked for now. */
function askedPackets(qp: Qp, wqe: SendWqe): u32 {
  let isEarlier = wqe.isSplit && psnDiff(qp.sendPsn, wqe.partPsn) < 0;
  let end = isEarlier ? wqe.partPsn : psnAdd(wqe.askedPsn, 1);
  return (end - qp.sendPsn) & 0xffffff;
}

/** The work request cannot be carried out: its error only once all before it are done, so that they are not flushed for its
 * fault. Answers false. */
function failInTurn(qp: Qp, status: WcStatus): bool {
  if (qp.sqNext == qp.sqTail) failSend(qp, status, 0, qp.sendPsn);
  return false;
}

/** Which packet of its message stands at this place. */
function opcodeAt(wr: u32, first: bool, last: bool): Opcode {
  switch (wr) {
    case WrOpcode.RDMA_READ:
      return Opcode.RDMA_READ_REQUEST;
    case WrOpcode.ATOMIC_CMP_AND_SWP:
      return Opcode.COMPARE_SWAP;
    case WrOpcode.ATOMIC_FETCH_AND_ADD:
      return Opcode.FETCH_ADD;
    case WrOpcode.FLUSH:
      return Opcode.FLUSH;
    case WrOpcode.ATOMIC_WRITE:
      return Opcode.ATOMIC_WRITE;
    case WrOpcode.RDMA_WRITE:
    case WrOpcode.RDMA_WRITE_WITH_IMM: {
      let imm = wr == WrOpcode.RDMA_WRITE_WITH_IMM;
      if (!last) return first ? Opcode.RDMA_WRITE_FIRST : Opcode.RDMA_WRITE_MIDDLE;
      if (first) return imm ? Opcode.RDMA_WRITE_ONLY_WITH_IMM : Opcode.RDMA_WRITE_ONLY;
      return imm ? Opcode.RDMA_WRITE_LAST_WITH_IMM : Opcode.RDMA_WRITE_LAST;
    }
  }
  if (!last) return first ? Opcode.SEND_FIRST : Opcode.SEND_MIDDLE;
  if (wr == WrOpcode.SEND_WITH_IMM) return first ? Opcode.SEND_ONLY_WITH_IMM : Opcode.SEND_LAST_WITH_IMM;
  if (wr == WrOpcode.SEND_WITH_INV) return first ? Opcode.SEND_ONLY_WITH_INVALIDATE : Opcode.SEND_LAST_WITH_INVALIDATE;
  return first ? Opcode.SEND_ONLY : Opcode.SEND_LAST;
}

/** The packet with PSN sendPsn of this work request, whose memory was looked at just now or must be. */
function build(qp: Qp, wqe: SendWqe, frame: usize, isFresh: bool): u32 {
  let psn = qp.sendPsn;
  let place = (psn - wqe.firstPsn) & 0xffffff;
  let offset = place * qp.mtu;
  let opcode = opcodeAt(wqe.opcode, place == 0, psn == wqe.lastPsn) | (qp.type == QpType.UC ? UC_CLASS : 0);
  let bth = qp.path.begin(frame);
  let payload = bth + headerBytes(opcode);
  let bytes: u32 = 0;
  if (isBare(wqe.opcode)) {
    writeBare(qp, wqe, opcode, offset, bth + BTH_BYTES);
  } else {
    bytes = min(qp.mtu, wqe.length - offset);
    if (wqe.isInline) memory.copy(payload, wqe.pieces + offset, bytes);
    else if (!gather(Card.get().keys, qp.pd, wqe.pieces, wqe.sgeCount, offset, payload, bytes, isFresh)) {
      failInTurn(qp, WcStatus.LOC_PROT_ERR);
      return 0;
    }
    if (opcode == Opcode.ATOMIC_WRITE || (isWrite(opcode) && isFirst(opcode)))
      Reth.at(bth + BTH_BYTES).write(wqe.va, wqe.rkey, wqe.length);
    if (hasImm(opcode)) ImmDt.at(payload - 4).write(wqe.imm);
    else if (hasInvalidate(opcode)) Ieth.at(payload - 4).write(wqe.imm);
  }
  let pad = -bytes & 3;
  if (pad) store<u32>(payload + bytes, 0);
  let last = isLast(opcode);
  // at least two ACKs per window, so that it never runs dry
  let ask = qp.type == QpType.RC && (last || ++qp.unasked >= qp.window >> 1 || (wqe.isLimited && place == 0));
  if (ask) qp.unasked = 0;
  // what takes no receive at the peer has no completion there to ask for
  let isSolicited = last && wqe.isSolicited && (isSend(opcode) || hasImm(opcode));
  Bth.at(bth).write(opcode, isSolicited, pad, qp.pkey, qp.destQpn, ask, psn, qp.migReq);
  advance(qp, wqe, opcode);
  let length = qp.path.close(frame, payload + bytes + pad);
  if (opcode == Opcode.FLUSH && qp.quirks & Quirk.RXE_FLUSH_ICRC) writeRxeFlushIcrc(bth, payload);
  return length;
}

/** A request that is all header. */
function isBare(opcode: u32): bool {
  return isRdAtomic(opcode) && opcode != WrOpcode.ATOMIC_WRITE;
}

function writeBare(qp: Qp, wqe: SendWqe, opcode: u32, offset: u32, ptr: usize): void {
  switch (opcode) {
    case Opcode.RDMA_READ_REQUEST:
      // a READ that is asked again from its middle, or in parts, is a request for what is wanted now
      return Reth.at(ptr).write(wqe.va + offset, wqe.rkey, min(wqe.length - offset, askedPackets(qp, wqe) * qp.mtu));
    case Opcode.FLUSH:
      Feth.at(ptr).write(wqe.imm & 15, wqe.imm >> 4);
      return Reth.at(ptr + FETH_BYTES).write(wqe.va, wqe.rkey, wqe.length);
    case Opcode.COMPARE_SWAP:
      return AtomicEth.at(ptr).write(wqe.va, wqe.rkey, wqe.swap, wqe.compareAdd);
  }
  AtomicEth.at(ptr).write(wqe.va, wqe.rkey, wqe.compareAdd, 0);
}

function advance(qp: Qp, wqe: SendWqe, opcode: u32): void {
  let psn = qp.sendPsn;
  let isRepeated = psnDiff(psn, qp.wirePsn) < 0;
  if (isRepeated) qp.count(Counter.retransmits);
  else if (isSend(opcode) && isLast(opcode)) qp.count(Counter.rdma_sends);
  // a READ request stands for all the packets of its answer
  qp.sendPsn = psnAdd(qp.sendPsn, wqe.opcode == WrOpcode.RDMA_READ ? askedPackets(qp, wqe) : 1);
  if (psnDiff(qp.sendPsn, qp.wirePsn) > 0) qp.wirePsn = qp.sendPsn;
  let isSent = psnDiff(qp.sendPsn, wqe.lastPsn) > 0;
  if (isSent) qp.sqNext++;
  if (qp.type == QpType.UC) {
    // nobody will answer: what has left is done
    qp.unackedPsn = qp.sendPsn;
    if (isSent) retireSend(qp);
    reportDrained(qp);
    return;
  }
  if (qp.ackDeadline == 0) restart(qp);
  if (qp.unasked == 0) noteAsked(qp, psn, isRepeated);
}
