// Responses (rxe's send_ack and prepare_ack_packet): builds the packets of the responder. READ and atomic responses
// come first, oldest first. An ACK or NAK waits for them, because it would acknowledge their requests without the data
// (IBTA 9.7.5.1.2).

import { DecisionKind, EventType, QpState, StateReason } from '../codes';
import { Counter } from '../counters';
import { Card } from '../host/card';
import { fetchAllButSpan } from '../host/place';
import { AETH_BYTES, Aeth, Syndrome } from '../wire/aeth';
import { AtomicAckEth } from '../wire/atomiceth';
import { BTH_BYTES, Bth } from '../wire/bth';
import { hasAeth, headerBytes, Opcode } from '../wire/opcode';
import { psnAdd, psnDiff } from '../wire/psn';
import { chargeRate, isPaced } from './congestion';
import { creditSyndrome, hasCreditUpdate } from './credit';
import { recordDecision } from './decisions';
import { isAckDeferred } from './deferredack';
import { resolveRead } from './execute';
import { fetchedSpan } from './icrcspan';
import { PendingAck, Qp } from './qp';
import { deactivate, oldestActive, RespResource } from './resource';
import { setState } from './state';

/** Writes the next response packet to `frame`; returns its length, 0 when there is none. */
export function nextResponse(qp: Qp, frame: usize): u32 {
  while (qp.activeResources != 0) {
    let resource = oldestActive(qp);
    coalesceAck(qp, resource);
    if (resource.isAtomic) return sendAtomicAck(qp, resource, frame);
    // READ data is subject to the rate limit like our own, and everything behind it waits too
    if (isPaced(qp)) return 0;
    let bytes = sendReadResponse(qp, resource, frame);
    chargeRate(qp, bytes);
    if (bytes != 0) return bytes;
  }
  if (qp.pendingAck != PendingAck.NONE) return sendAck(qp, frame);
  return hasCreditUpdate(qp) && !isAckDeferred(qp) ? sendCreditUpdate(qp, frame) : 0;
}

/**
 * Drops a pending ACK of a request before a response. The response acknowledges that request too, and an ACK after it
 * would be out of order (IBTA 9.7.5.1.2).
 */
function coalesceAck(qp: Qp, response: RespResource): void {
  if (qp.pendingAck != PendingAck.SEND || qp.pendingSyndrome != Syndrome.ACK) return;
  if (psnDiff(qp.pendingPsn, response.firstPsn) < 0) qp.pendingAck = PendingAck.NONE;
}

/** Sends an ACK that carries only credits: it repeats the newest ACK (IBTA 9.7.7.2.4). */
function sendCreditUpdate(qp: Qp, frame: usize): u32 {
  qp.setPendingAck(PendingAck.SEND, Syndrome.ACK, psnAdd(qp.ePsn, -1));
  return sendAck(qp, frame);
}

/** Sends the pending ACK or NAK. A NAK of SEND_AND_FAIL moves the queue pair to the error state. */
function sendAck(qp: Qp, frame: usize): u32 {
  let bth = qp.path.begin(frame);
  Bth.at(bth).write(Opcode.ACKNOWLEDGE, false, 0, qp.pkey, qp.destQpn, false, qp.pendingPsn, qp.migReq);
  let isAck = qp.pendingSyndrome == Syndrome.ACK;
  Aeth.at(bth + BTH_BYTES).write(isAck ? creditSyndrome(qp) : qp.pendingSyndrome, qp.msn);
  if (qp.pendingSyndrome == Syndrome.NAK_SEQUENCE) qp.isRepetitionDue = true;
  let ends = qp.pendingAck == PendingAck.SEND_AND_FAIL;
  qp.pendingAck = PendingAck.NONE;
  let bytes = qp.path.close(frame, bth + BTH_BYTES + AETH_BYTES);
  if (ends) setState(qp, QpState.ERR, StateReason.REQUEST_REJECTED);
  return bytes;
}

function sendAtomicAck(qp: Qp, resource: RespResource, frame: usize): u32 {
  let bth = qp.path.begin(frame);
  Bth.at(bth).write(Opcode.ATOMIC_ACKNOWLEDGE, false, 0, qp.pkey, qp.destQpn, false, resource.firstPsn, qp.migReq);
  Aeth.at(bth + BTH_BYTES).write(creditSyndrome(qp), qp.msn);
  AtomicAckEth.at(bth + BTH_BYTES + AETH_BYTES).write(resource.original);
  deactivate(qp, resource);
  return qp.path.close(frame, bth + headerBytes(Opcode.ATOMIC_ACKNOWLEDGE));
}

/**
 * Sends the next packet of a READ response, from the memory as it is now. Returns 0 when that is gone; the resource is
 * then no longer active.
 */
function sendReadResponse(qp: Qp, resource: RespResource, frame: usize): u32 {
  let psn = resource.responsePsn;
  let first = psn == resource.responseFirstPsn;
  let last = psn == resource.responseLastPsn;
  let opcode = first
    ? last
      ? Opcode.RDMA_READ_RESPONSE_ONLY
      : Opcode.RDMA_READ_RESPONSE_FIRST
    : last
      ? Opcode.RDMA_READ_RESPONSE_LAST
      : Opcode.RDMA_READ_RESPONSE_MIDDLE;
  let offset = ((psn - resource.responseFirstPsn) & 0xffffff) * qp.mtu;
  let bytes = min(qp.mtu, resource.responseLength - offset);
  let bth = qp.path.begin(frame);
  let payload = bth + headerBytes(opcode);
  let span = fetchedSpan(opcode, bytes);
  if (bytes != 0) {
    let source = resolveRead(qp, resource.rkey, resource.responseVa + offset, bytes);
    if (source == 0 || !fetchAllButSpan(source, payload, bytes, span))
      return resource.isReplay ? dropReplay(qp, resource) : failReadResponse(qp, resource);
  }
  let pad = -bytes & 3;
  if (pad) store<u32>(payload + bytes, 0);
  Bth.at(bth).write(opcode, false, pad, qp.pkey, qp.destQpn, false, psn, qp.migReq);
  if (hasAeth(opcode)) Aeth.at(bth + BTH_BYTES).write(creditSyndrome(qp), qp.msn);
  resource.responsePsn = psnAdd(psn, 1);
  if (last) deactivate(qp, resource);
  return qp.path.close(frame, payload + bytes + pad, span != 0);
}

/** The memory went between the arrival of a repeated READ and its answer: that READ is dropped, as in replayRead. */
function dropReplay(qp: Qp, resource: RespResource): u32 {
  let psn = resource.responsePsn;
  recordDecision(qp, DecisionKind.REPLAY_DROPPED, 0, psn, psnDiff(resource.responseLastPsn, psn) + 1, 0);
  deactivate(qp, resource);
  return 0;
}

/** The region was deregistered or invalidated while it was being read: schedules a NAK for the missing response. */
function failReadResponse(qp: Qp, resource: RespResource): u32 {
  qp.count(Counter.resp_remote_access_errors);
  Card.get().events.raise(EventType.QP_ACCESS_ERR, qp.ptr);
  qp.setPendingAck(PendingAck.SEND_AND_FAIL, Syndrome.NAK_REMOTE_ACCESS, resource.responsePsn);
  recordDecision(qp, DecisionKind.NAK, 0, qp.pendingPsn, 0, qp.pendingSyndrome);
  qp.activeResources = 0;
  return 0;
}
