// The responder of RC queue pairs (IBTA 9.7.4, 9.7.5): keeps the peer's requests in order, checks (check.ts) and
// executes (execute.ts) them, and schedules ACKs and NAKs. nextResponse (response.ts) sends the responses, in order.

import { DecisionKind, EventType, QpState, StateReason, WcStatus } from '../codes';
import { Counter, NO_DROP } from '../counters';
import { Card } from '../host/card';
import { Syndrome } from '../wire/aeth';
import { isAnswered, isAtomic, isRead, isReserved, isSend } from '../wire/opcode';
import { Packet } from '../wire/packet';
import { packetCount, psnAdd, psnDiff } from '../wire/psn';
import { check, Fault } from './check';
import { completeRecv } from './completion';
import { recordDecision } from './decisions';
import { deferAck, needsAcksInOrder, releaseAck } from './deferredack';
import { execute, resolveRead, startEmptyResponse, startReadResponse } from './execute';
import { Expect, PendingAck, Qp, SentNak } from './qp';
import { bufferPacket, freeSlot, takeBuffered } from './reorder';
import { activate, dropAgedResources, findResource, firstResourcePsnAfter, noteReplay } from './resource';
import { nextRnrCode } from './rnr';
import { schedule } from './schedule';
import { setState } from './state';

/**
 * Raises COMM_EST for the peer's first packet in RTR: the application may be waiting for it before it moves to RTS
 * (IBTA 11.6.3.2).
 */
export function noteFirstPacket(qp: Qp): void {
  if (qp.hasReceived) return;
  qp.hasReceived = true;
  if (qp.state == QpState.RTR) Card.get().events.raise(EventType.COMM_EST, qp.ptr);
}

/** Returns why the packet was dropped, or NO_DROP. */
export function receiveRequest(qp: Qp, packet: Packet): Counter {
  if (qp.pendingAck == PendingAck.SEND_AND_FAIL) return Counter.drop_after_fault;
  noteFirstPacket(qp);
  let ahead = psnDiff(packet.psn, qp.ePsn);
  if (ahead > 0) return receiveOutOfSequence(qp, packet, ahead);
  if (ahead < 0) return receiveDuplicate(qp, packet);
  receiveInOrder(qp, packet, false);
  if (qp.reorderFirst != 0) receiveKept(qp, qp.isRepetitionDue && needsAcksInOrder(packet));
  if (qp.reorderFirst == 0) qp.isRepetitionDue = false;
  return NO_DROP;
}

/**
 * Checks and executes the request with the expected PSN. If the peer is about to send it again, it is not answered now,
 * nor refused.
 */
function receiveInOrder(qp: Qp, packet: Packet, isRepeated: bool): void {
  qp.sentNak = SentNak.NONE;
  // a NAK for this very packet that is not sent yet has become wrong: an ACK replaces it
  let isAckDue = qp.pendingAck == PendingAck.SEND && qp.pendingSyndrome != Syndrome.ACK;
  if (isAckDue) qp.pendingAck = PendingAck.NONE;
  let fault = check(qp, packet);
  if (fault == Fault.NONE) fault = execute(qp, packet);
  // a full completion queue has failed the queue pair without a NAK (class G)
  if (qp.state == QpState.ERR) return;
  if (fault != Fault.NONE) {
    if (!isRepeated) rejectRequest(qp, packet, fault);
  } else {
    qp.rnrNaks = 0;
    if (!isRepeated) ackRequest(qp, packet, isAckDue);
  }
  dropAgedResources(qp);
}

/**
 * Executes what has waited for the packets before it. Another gap behind it gets its NAK with the next packet that
 * arrives ahead of it: until then the peer may be sending again what is missing there.
 */
function receiveKept(qp: Qp, isDeferring: bool): void {
  let before = qp.ePsn;
  while (isResponding(qp)) {
    let slot = takeBuffered(qp);
    if (changetype<usize>(slot) == 0) break;
    let packet = slot.packet;
    if (changetype<usize>(packet) != 0 && slot.psn == qp.ePsn) {
      qp.count(Counter.rx_reordered);
      receiveInOrder(qp, packet, isDeferring);
    }
    freeSlot(slot);
  }
  if (isDeferring && qp.ePsn != before) deferAck(qp, psnAdd(qp.ePsn, -1));
}

/** Returns whether the queue pair takes further requests. */
function isResponding(qp: Qp): bool {
  return qp.state != QpState.ERR && qp.pendingAck != PendingAck.SEND_AND_FAIL;
}

/**
 * A gap in the PSNs: keeps the packet if there is room, and schedules one NAK until the gap is filled. What follows a
 * packet that found no receive is dropped. So are READs, atomics and the like: the peer sends them again after the NAK,
 * and rxe takes the responses to its first request, when they come then, for those to the second, and loses some.
 */
function receiveOutOfSequence(qp: Qp, packet: Packet, gap: i32): Counter {
  let isBuffered = qp.sentNak != SentNak.RNR && !isAnswered(packet.opcode) && bufferPacket(qp, packet, gap);
  if (qp.sentNak != SentNak.NONE) return isBuffered ? NO_DROP : Counter.drop_psn_ahead;
  nakGap(qp, gap);
  return NO_DROP;
}

/** The NAK of a gap, which is sent once (IBTA 9.7.5.2.2). */
function nakGap(qp: Qp, gap: i32): void {
  qp.sentNak = SentNak.SEQUENCE;
  qp.count(Counter.out_of_seq_request);
  scheduleNak(qp, PendingAck.SEND, Syndrome.NAK_SEQUENCE, qp.ePsn, gap);
}

/** Schedules an ACK if the packet requests one; READs and atomics are acknowledged by their responses. */
function ackRequest(qp: Qp, packet: Packet, isAckDue: bool): void {
  let opcode = packet.opcode;
  if (isAnswered(opcode)) schedule(qp);
  else if (packet.isAckRequested || isAckDue) scheduleAck(qp, PendingAck.SEND, Syndrome.ACK, packet.psn);
}

/** IBTA 9.7.5.1.4: a request that was executed already is answered again, not executed again. */
function receiveDuplicate(qp: Qp, packet: Packet): Counter {
  let opcode = packet.opcode;
  qp.count(Counter.duplicate_request);
  if (isReserved(opcode)) return Counter.drop_duplicate_unknown;
  if (isRead(opcode)) return replayRead(qp, packet);
  if (isAnswered(opcode)) return replayResponse(qp, packet);
  // not beyond a READ or atomic: its response may have been lost, and an ACK after it would complete it too early
  let newest = psnAdd(firstResourcePsnAfter(qp, packet.psn, qp.ePsn), -1);
  let psn = newest;
  if (needsAcksInOrder(packet)) {
    psn = packet.psn;
    if (psn == newest) releaseAck(qp);
    else deferAck(qp, newest);
  }
  // the pending ACK or NAK takes precedence: a NAK acknowledges as much, and so does the ACK of a newer packet
  let isAcked =
    qp.pendingAck != PendingAck.NONE && (qp.pendingSyndrome != Syndrome.ACK || psnDiff(qp.pendingPsn, psn) >= 0);
  if (!isAcked) scheduleAck(qp, PendingAck.SEND, Syndrome.ACK, psn);
  return NO_DROP;
}

/**
 * Reads the memory again, which may have newer content. The range must lie in that of the first request. Once a READ is
 * complete its peer may have the key invalidated, and its owner may close the region: a repetition that comes then was
 * on its way before, and is no error.
 */
function replayRead(qp: Qp, packet: Packet): Counter {
  let resource = findResource(qp, packet.psn);
  if (changetype<usize>(resource) == 0 || resource.isAtomic || resource.isEmptyResponse)
    return Counter.drop_duplicate_unknown;
  let reth = packet.reth;
  let offset = reth.va - resource.va;
  if (reth.rkey != resource.rkey || offset > <u64>resource.length || <u64>reth.length > <u64>resource.length - offset)
    return Counter.drop_duplicate_unknown;
  let last = psnAdd(packet.psn, packetCount(reth.length, qp.mtu) - 1);
  if (psnDiff(last, resource.lastPsn) > 0) return Counter.drop_duplicate_unknown;
  if (reth.length != 0 && resolveRead(qp, reth.rkey, reth.va, reth.length) == 0) return Counter.drop_duplicate_unknown;
  noteReplay(resource);
  startReadResponse(qp, resource, packet);
  schedule(qp);
  return NO_DROP;
}

/** Sends the saved response of an atomic, ATOMIC WRITE or FLUSH again. */
function replayResponse(qp: Qp, packet: Packet): Counter {
  let resource = findResource(qp, packet.psn);
  if (changetype<usize>(resource) == 0 || resource.isAtomic != isAtomic(packet.opcode))
    return Counter.drop_duplicate_unknown;
  if (!resource.isAtomic && !resource.isEmptyResponse) return Counter.drop_duplicate_unknown;
  noteReplay(resource);
  if (resource.isAtomic) activate(qp, resource);
  else startEmptyResponse(qp, resource);
  schedule(qp);
  return NO_DROP;
}

function scheduleAck(qp: Qp, ack: PendingAck, syndrome: u32, psn: u32): void {
  qp.setPendingAck(ack, syndrome, psn);
  schedule(qp);
}

function scheduleNak(qp: Qp, nak: PendingAck, syndrome: u32, psn: u32, gap: i32): void {
  recordDecision(qp, DecisionKind.NAK, 0, psn, gap, syndrome);
  scheduleAck(qp, nak, syndrome, psn);
}

/** The table of IBTA 9.9.3: which NAK the peer gets and how our side fails. */
function rejectRequest(qp: Qp, packet: Packet, fault: Fault): void {
  let psn = packet.psn;
  let events = Card.get().events;
  if (fault == Fault.RNR) {
    // packets in flight behind it are dropped silently, as behind a gap
    qp.sentNak = SentNak.RNR;
    qp.count(Counter.send_rnr_err);
    return scheduleNak(qp, PendingAck.SEND, Syndrome.RNR | nextRnrCode(qp), psn, 0);
  }
  if (fault == Fault.NO_RESOURCE) {
    if (qp.sentNak == SentNak.NONE) nakGap(qp, 0);
    return;
  }
  if (fault == Fault.RKEY) {
    qp.count(Counter.resp_remote_access_errors);
    events.raise(EventType.QP_ACCESS_ERR, qp.ptr);
    return scheduleNak(qp, PendingAck.SEND_AND_FAIL, Syndrome.NAK_REMOTE_ACCESS, psn, 0);
  }
  if (fault == Fault.LOCAL_PROTECTION) {
    completeRecv(qp, packet, 0, WcStatus.LOC_PROT_ERR);
    return scheduleNak(qp, PendingAck.SEND_AND_FAIL, Syndrome.NAK_REMOTE_OPERATION, psn, 0);
  }
  if (fault == Fault.INVALIDATE) {
    completeRecv(qp, packet, 0, WcStatus.REM_INV_REQ_ERR);
    if (packet.isAckRequested) return scheduleAck(qp, PendingAck.SEND_AND_FAIL, Syndrome.ACK, psn);
    // the ACK of earlier packets is still sent
    if (qp.pendingAck == PendingAck.SEND) qp.pendingAck = PendingAck.SEND_AND_FAIL;
    else setState(qp, QpState.ERR, StateReason.REQUEST_REJECTED);
    return;
  }
  qp.count(Counter.resp_remote_invalid_request);
  // the receive WQE that was being filled completes in error; otherwise an event is raised
  if (fault == Fault.LENGTH && isSend(packet.opcode)) completeRecv(qp, packet, 0, WcStatus.LOC_LEN_ERR);
  else if (qp.expect == Expect.SEND) completeRecv(qp, packet, 0, WcStatus.LOC_QP_OP_ERR);
  else events.raise(fault == Fault.NOT_ENABLED ? EventType.QP_ACCESS_ERR : EventType.QP_REQ_ERR, qp.ptr);
  scheduleNak(qp, PendingAck.SEND_AND_FAIL, Syndrome.NAK_INVALID_REQUEST, psn, 0);
}
