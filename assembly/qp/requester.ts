// The requester: builds request packets from send work requests (IBTA 9.7.2, 9.7.3). No sent packet is kept: a
// retransmitted packet is built again from the work request and the registered memory, by its PSN.

import { Access, QpState, QpType, Quirk, WcStatus, WrOpcode } from '../codes';
import { Counter } from '../counters';
import { Card } from '../host/card';
import { reportLoss } from '../host/loss';
import { areSgesValid, Gathered, SendWqe } from '../host/wqe';
import { AtomicEth } from '../wire/atomiceth';
import { BTH_BYTES, Bth } from '../wire/bth';
import { FETH_BYTES, Feth } from '../wire/feth';
import { writeRxeFlushIcrc } from '../wire/icrc';
import { Ieth } from '../wire/ieth';
import { ImmDt } from '../wire/immdt';
import { hasImm, hasInvalidate, headerBytes, isFirst, isLast, isSend, isWrite, Opcode } from '../wire/opcode';
import { packetCount, psnAdd, psnDiff } from '../wire/psn';
import { Reth } from '../wire/reth';
import { noteAckRequested } from './adaptive';
import { retireSend } from './completion';
import { chargeRate, isPaced } from './congestion';
import { advanceSsnAndLsn, hasCredit, mustAwaitFirstAck, noteMessageStarted } from './credit';
import { nextKeepAlive } from './keepalive';
import { executeLocalOp } from './localops';
import { copyPayload } from './payload';
import { Qp } from './qp';
import { isAwaitingMissing } from './seqnak';
import { failSend, raiseDrained } from './state';
import { restartAckTimer } from './timer';
import { hasEmptyResponse, isAtomicWr, isLocalOp, isRdAtomic } from './wropcode';

/** Turns an opcode of RC into the same operation of UC. */
const UC_CLASS: u32 = 0x20;

/** Writes the next request packet to `frame`; returns its length, 0 when none may be sent now. */
export function nextRequest(qp: Qp, frame: usize): u32 {
  let bytes = nextOfWork(qp, frame);
  return bytes != 0 ? bytes : nextKeepAlive(qp, frame);
}

/** Writes the next packet of the work requests. */
function nextOfWork(qp: Qp, frame: usize): u32 {
  if (qp.rnrDeadline != 0 || isAwaitingMissing(qp)) return 0;
  while (qp.sqNext != qp.sqHead && (qp.state == QpState.RTS || qp.state == QpState.SQD)) {
    let wqe = qp.sendWqe(qp.sqNext);
    if (isLocalOp(wqe.opcode)) {
      if (!executeLocalOp(qp, wqe)) return 0;
      continue;
    }
    // during a retransmission, too, packets in flight count from the oldest unacknowledged one
    let room: u32 = qp.isProbing ? 1 : qp.window;
    if (qp.type == QpType.RC && <u32>psnDiff(qp.sendPsn, qp.unackedPsn) >= room) return 0;
    if (isPaced(qp)) return 0;
    let isNew = !wqe.isStarted;
    if (isNew && !startMessage(qp, wqe)) return 0;
    if (mustAwaitFirstAck(qp, wqe)) return 0;
    if (wqe.opcode == WrOpcode.RDMA_READ && !claimReadPart(qp, wqe)) return 0;
    let bytes = buildPacket(qp, wqe, frame, isNew);
    chargeRate(qp, bytes);
    return bytes;
  }
  return 0;
}

/** Assigns PSNs to a work request; false when it has to wait. */
function startMessage(qp: Qp, wqe: SendWqe): bool {
  if (qp.state == QpState.SQD) return false;
  if (wqe.isFenced && qp.rdAtomicInFlight != 0) return false;
  if (isRdAtomic(wqe.opcode)) {
    // the limit became 0 in SQD after the work request was posted: it would wait forever
    if (qp.maxRdAtomic == 0) return failOnceOldest(qp, WcStatus.LOC_QP_OP_ERR);
    if (qp.rdAtomicInFlight >= qp.maxRdAtomic) return false;
  }
  let right: u32 = wqe.opcode == WrOpcode.RDMA_READ || isAtomicWr(wqe.opcode) ? Access.LOCAL_WRITE : 0;
  if (!wqe.isInline && !areSgesValid(Card.get().keys, qp.pd, wqe.sges, wqe.sgeCount, right))
    return failOnceOldest(qp, WcStatus.LOC_PROT_ERR);
  if (!hasCredit(qp, wqe)) return false;
  let packets = hasEmptyResponse(wqe.opcode) ? 1 : packetCount(wqe.length, qp.mtu);
  wqe.firstPsn = qp.allocPsn;
  wqe.lastPsn = psnAdd(qp.allocPsn, packets - 1);
  qp.allocPsn = psnAdd(qp.allocPsn, packets);
  wqe.isStarted = true;
  noteMessageStarted(qp, wqe);
  if (isRdAtomic(wqe.opcode)) qp.rdAtomicInFlight++;
  return true;
}

/**
 * Returns whether the next part of a READ may be requested, and sets its extent. The response is data in flight like
 * our own and must fit the window. At most two parts are outstanding. The second one needs another response resource of
 * the peer, so that its request need not wait for the end of the first response.
 */
function claimReadPart(qp: Qp, wqe: SendWqe): bool {
  // the peer may know a part as one request: a retransmitted request ends where the first one ended
  if (wqe.isReadRequested && psnDiff(qp.sendPsn, wqe.requestedPsn) <= 0) return true;
  let inFlight = <u32>psnDiff(qp.sendPsn, qp.unackedPsn);
  let isAhead = wqe.isReadRequested && inFlight != 0;
  if (isAhead && (psnDiff(qp.unackedPsn, wqe.partPsn) < 0 || qp.rdAtomicInFlight >= qp.maxRdAtomic)) return false;
  let room = qp.window - inFlight;
  let remaining = ((wqe.lastPsn - qp.sendPsn) & 0xffffff) + 1;
  if (room < min(remaining, qp.window >> 1)) return false;
  if (wqe.isReadRequested) advanceSsnAndLsn(qp);
  if (isAhead) {
    qp.isNextReadPartInFlight = true;
    qp.rdAtomicInFlight++;
  }
  wqe.isReadRequested = true;
  wqe.requestedPsn = psnAdd(qp.sendPsn, min(remaining, room) - 1);
  if (wqe.requestedPsn != wqe.lastPsn) wqe.isSplit = true;
  if (wqe.isSplit) wqe.partPsn = qp.sendPsn;
  return true;
}

/** Returns the number of response packets of the READ request that is being built. */
function requestedPackets(qp: Qp, wqe: SendWqe): u32 {
  let isEarlier = wqe.isSplit && psnDiff(qp.sendPsn, wqe.partPsn) < 0;
  let end = isEarlier ? wqe.partPsn : psnAdd(wqe.requestedPsn, 1);
  return (end - qp.sendPsn) & 0xffffff;
}

/**
 * The work request cannot be executed. It fails only once all before it are done, so that they are not flushed for its
 * error. Returns false.
 */
function failOnceOldest(qp: Qp, status: WcStatus): bool {
  if (qp.sqNext == qp.sqTail) failSend(qp, status, 0, qp.sendPsn);
  return false;
}

/** Returns the opcode of a packet by its position in the message. */
function nextOpcode(wr: u32, first: bool, last: bool): Opcode {
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

/**
 * Builds the packet with PSN sendPsn of this work request.
 * @param isNew the SGEs were checked just now
 */
function buildPacket(qp: Qp, wqe: SendWqe, frame: usize, isNew: bool): u32 {
  let psn = qp.sendPsn;
  let packetIndex = (psn - wqe.firstPsn) & 0xffffff;
  let offset = packetIndex * qp.mtu;
  let opcode = nextOpcode(wqe.opcode, packetIndex == 0, psn == wqe.lastPsn) | (qp.type == QpType.UC ? UC_CLASS : 0);
  let bth = qp.path.begin(frame);
  let payload = bth + headerBytes(opcode);
  let bytes: u32 = 0;
  let gathered = Gathered.ALL;
  if (isHeaderOnly(wqe.opcode)) {
    writeHeaders(qp, wqe, opcode, offset, bth + BTH_BYTES);
  } else {
    bytes = min(qp.mtu, wqe.length - offset);
    gathered = copyPayload(qp, wqe, opcode, offset, payload, bytes, isNew);
    if (gathered == Gathered.REFUSED) {
      failOnceOldest(qp, WcStatus.LOC_PROT_ERR);
      return 0;
    }
    if (opcode == Opcode.ATOMIC_WRITE || (isWrite(opcode) && isFirst(opcode)))
      Reth.at(bth + BTH_BYTES).write(wqe.va, wqe.rkey, wqe.length);
    if (hasImm(opcode)) ImmDt.at(payload - 4).write(wqe.imm);
    else if (hasInvalidate(opcode)) Ieth.at(payload - 4).write(wqe.imm);
  }
  let pad = -bytes & 3;
  if (pad) store<u32>(payload + bytes, 0);
  let isLastPacket = isLast(opcode);
  // at least two ACKs per window, so that the window never runs dry
  let ackRequest =
    qp.type == QpType.RC &&
    (isLastPacket || ++qp.packetsSinceAckReq >= qp.window >> 1 || (wqe.isUncredited && packetIndex == 0));
  if (ackRequest) qp.packetsSinceAckReq = 0;
  // a message that uses no receive has no completion at the peer to solicit
  let isSolicited = isLastPacket && wqe.isSolicited && (isSend(opcode) || hasImm(opcode));
  Bth.at(bth).write(opcode, isSolicited, pad, qp.pkey, qp.destQpn, ackRequest, psn, qp.migReq);
  advancePsn(qp, wqe, opcode);
  let length = qp.path.close(frame, payload + bytes + pad, gathered == Gathered.ALL_BUT_SHARE);
  if (opcode == Opcode.FLUSH && qp.quirks & Quirk.RXE_FLUSH_ICRC) writeRxeFlushIcrc(bth, payload);
  return length;
}

/** Returns whether the request has headers only. */
function isHeaderOnly(opcode: u32): bool {
  return isRdAtomic(opcode) && opcode != WrOpcode.ATOMIC_WRITE;
}

function writeHeaders(qp: Qp, wqe: SendWqe, opcode: u32, offset: u32, ptr: usize): void {
  switch (opcode) {
    case Opcode.RDMA_READ_REQUEST:
      // a READ that is requested again from its middle, or in parts, asks only for what is missing
      return Reth.at(ptr).write(
        wqe.va + offset,
        wqe.rkey,
        min(wqe.length - offset, requestedPackets(qp, wqe) * qp.mtu),
      );
    case Opcode.FLUSH:
      Feth.at(ptr).write(wqe.imm & 15, wqe.imm >> 4);
      return Reth.at(ptr + FETH_BYTES).write(wqe.va, wqe.rkey, wqe.length);
    case Opcode.COMPARE_SWAP:
      return AtomicEth.at(ptr).write(wqe.va, wqe.rkey, wqe.swap, wqe.compareAdd);
  }
  AtomicEth.at(ptr).write(wqe.va, wqe.rkey, wqe.compareAdd, 0);
}

function advancePsn(qp: Qp, wqe: SendWqe, opcode: u32): void {
  let psn = qp.sendPsn;
  let isRetransmit = psnDiff(psn, qp.unsentPsn) < 0;
  if (isRetransmit) {
    qp.count(Counter.retransmits);
    reportLoss();
  } else if (isSend(opcode) && isLast(opcode)) {
    qp.count(Counter.rdma_sends);
  }
  // a READ request uses the PSNs of all packets of its response
  qp.sendPsn = psnAdd(qp.sendPsn, wqe.opcode == WrOpcode.RDMA_READ ? requestedPackets(qp, wqe) : 1);
  if (psnDiff(qp.sendPsn, qp.unsentPsn) > 0) qp.unsentPsn = qp.sendPsn;
  let isSent = psnDiff(qp.sendPsn, wqe.lastPsn) > 0;
  if (isSent) qp.sqNext++;
  if (qp.type == QpType.UC) {
    // no response will come: a packet that was sent is done
    qp.unackedPsn = qp.sendPsn;
    if (isSent) retireSend(qp);
    raiseDrained(qp);
    return;
  }
  if (qp.ackDeadline == 0) restartAckTimer(qp);
  if (qp.packetsSinceAckReq == 0) noteAckRequested(qp, psn, isRetransmit);
}
