// The completer: receives the peer's responses (IBTA 9.7.5.1), which are ACK, NAK, RNR NAK, READ response and atomic
// ACK, and completes send work requests.

import { DecisionKind, QpState, RetransmitReason, WcStatus, WrOpcode } from '../codes';
import { Counter, NO_DROP } from '../counters';
import { Card } from '../host/card';
import { SendWqe, scatter } from '../host/wqe';
import { Aeth, AethClass, Syndrome } from '../wire/aeth';
import { hasAeth, isLast, isReadResponse, Opcode } from '../wire/opcode';
import { Packet } from '../wire/packet';
import { PSN_MASK, psnAdd, psnDiff } from '../wire/psn';
import { endProbe, noteAcked, noteLoss } from './adaptive';
import { retireSend } from './completion';
import { isCreditUpdate, updateCredits } from './credit';
import { recordDecision } from './decisions';
import { Qp } from './qp';
import { retransmitAgain, retry, retryAfterRnr } from './retry';
import { rewind } from './rewind';
import { schedule } from './schedule';
import { noteGapFilled, receiveSequenceNak } from './seqnak';
import { failSend, raiseDrained } from './state';
import { refillRetries, restartAckTimer } from './timer';
import { growWindow } from './window';
import { hasEmptyResponse, isAtomicWr, isLocalOp, isRdAtomic } from './wropcode';

/** Returns why the packet was dropped, or NO_DROP. */
export function receiveResponse(qp: Qp, packet: Packet): Counter {
  let psn = packet.psn;
  // a response to a request that was never sent
  if (psnDiff(psn, qp.unsentPsn) >= 0) return Counter.drop_ghost_response;
  let drop = isReadResponse(packet.opcode)
    ? receiveReadResponse(qp, packet)
    : packet.opcode == Opcode.ATOMIC_ACKNOWLEDGE
      ? receiveAtomicAck(qp, packet)
      : receiveAck(qp, packet);
  if (qp.state == QpState.ERR) return drop;
  raiseDrained(qp);
  schedule(qp);
  return drop;
}

/**
 * Completes the work requests that end at or before `psn`: the peer has received everything up to there. Returns false
 * when the response of an earlier READ or atomic is missing, because only that response can complete it (IBTA
 * 9.7.5.1.3).
 */
function completeUpTo(qp: Qp, psn: u32): bool {
  let before = qp.unackedPsn;
  let complete = true;
  while (qp.sqTail != qp.sqHead) {
    let wqe = qp.sendWqe(qp.sqTail);
    if (!wqe.isStarted || psnDiff(wqe.firstPsn, psn) > 0) break;
    if (isRdAtomic(wqe.opcode)) {
      complete = psnDiff(qp.unackedPsn, psn) > 0;
      break;
    }
    if (psnDiff(wqe.lastPsn, psn) > 0) {
      if (psnDiff(psn, qp.unackedPsn) >= 0) qp.unackedPsn = psnAdd(psn, 1);
      break;
    }
    qp.unackedPsn = psnAdd(wqe.lastPsn, 1);
    retireSend(qp);
  }
  if (qp.unackedPsn != before) advanceUnacked(qp, before);
  return complete;
}

/** The oldest unacknowledged PSN has advanced from `before`. */
function advanceUnacked(qp: Qp, before: u32): void {
  if (qp.state == QpState.ERR) return;
  if (qp.retryLeft != qp.retryCnt || qp.rnrs != 0) recover(qp);
  qp.isReadRetried = false;
  if (qp.isNakRetried || qp.isReorderTrial) noteGapFilled(qp);
  // the peer has accepted the packet for which it was not ready
  qp.rnrDeadline = 0;
  growWindow(qp, <u32>psnDiff(qp.unackedPsn, before));
  // packets that were about to be retransmitted have arrived after all
  if (qp.isProbing) endProbe(qp);
  else if (psnDiff(qp.unackedPsn, qp.sendPsn) > 0) skipAcked(qp);
  restartAckTimer(qp);
  noteAcked(qp);
}

/** The first progress after a retry, which makes all retries available again. */
function recover(qp: Qp): void {
  recordDecision(qp, DecisionKind.RECOVERED, 0, qp.unackedPsn, 0, 0);
  refillRetries(qp);
}

function skipAcked(qp: Qp): void {
  recordDecision(qp, DecisionKind.SKIPPED, 0, qp.unackedPsn, psnDiff(qp.unackedPsn, qp.sendPsn), 0);
  rewind(qp, qp.unackedPsn);
}

/** An earlier response is missing: retransmits from it on, once, and again when that was lost too. */
function impliedNak(qp: Qp): Counter {
  if (qp.rnrDeadline != 0) return Counter.drop_response_order;
  if (qp.isReadRetried) {
    retransmitAgain(qp, RetransmitReason.IMPLIED_NAK);
  } else {
    qp.isReadRetried = true;
    qp.retransmittedAt = Card.get().now;
    qp.count(Counter.implied_nak_seq_err);
    noteLoss(qp);
    retry(qp, qp.unackedPsn, RetransmitReason.IMPLIED_NAK);
  }
  return Counter.drop_response_order;
}

function receiveAck(qp: Qp, packet: Packet): Counter {
  let syndrome = packet.aeth.syndrome;
  let psn = packet.psn;
  let kind = syndrome >> 5;
  if (kind != AethClass.ACK && kind != AethClass.RNR && !isNak(syndrome)) return Counter.drop_reserved_syndrome;
  if (kind == AethClass.ACK) {
    if (psnDiff(psn, qp.unackedPsn) < 0)
      return isCreditUpdate(qp, psn) && updateCredits(qp, packet.aeth) ? NO_DROP : Counter.drop_ghost_response;
    updateCredits(qp, packet.aeth);
    return completeUpTo(qp, psn) ? NO_DROP : impliedNak(qp);
  }
  if (psnDiff(psn, qp.unackedPsn) < 0) return receiveOldNak(qp, psn, packet.aeth);
  if (kind == AethClass.NAK && syndrome != Syndrome.NAK_SEQUENCE && !isPlausibleMsn(qp, packet.aeth.msn))
    return Counter.drop_implausible_nak;
  // a NAK acknowledges all packets before it
  if (!completeUpTo(qp, psnAdd(psn, -1))) return impliedNak(qp);
  if (qp.state == QpState.ERR) return NO_DROP;
  if (qp.rnrDeadline != 0) return Counter.drop_rnr_wait;
  qp.lastSyndrome = <u8>syndrome;
  if (kind == AethClass.RNR) {
    qp.count(Counter.rcvd_rnr_err);
    retryAfterRnr(qp, psn, syndrome & 31);
  } else if (syndrome == Syndrome.NAK_SEQUENCE) {
    receiveSequenceNak(qp, psn);
  } else {
    failByNak(qp, psn, syndrome);
  }
  return NO_DROP;
}

/**
 * Returns whether the peer can have completed so many messages: no more than were started, and no fewer than are
 * acknowledged (IBTA 9.7.7.1). A responder may refuse any request packet in flight, and ends the connection with it.
 * Whoever forges that NAK has to guess the PSN and the MSN.
 */
function isPlausibleMsn(qp: Qp, msn: u32): bool {
  let outstanding: u32 = 0;
  for (let n = qp.sqTail; n != qp.sqHead; n++) {
    let wqe = qp.sendWqe(n);
    if (isLocalOp(wqe.opcode)) continue;
    if (!wqe.isStarted) break;
    // each part of a READ that left as several requests is a message
    outstanding += wqe.isSplit ? ((wqe.lastPsn - wqe.firstPsn) & PSN_MASK) + 1 : 1;
  }
  return <u32>psnDiff(qp.ssn, msn) <= outstanding;
}

function isNak(syndrome: u32): bool {
  return syndrome >= <u32>Syndrome.NAK_SEQUENCE && syndrome <= <u32>Syndrome.NAK_REMOTE_OPERATION;
}

/**
 * A NAK older than the oldest unacknowledged PSN. It counts only when the peer aborts a READ midway and refers to the
 * request (as rxe does). That may be the request for a part of the READ, where the READ is requested in parts or again
 * from its middle.
 */
function receiveOldNak(qp: Qp, psn: u32, aeth: Aeth): Counter {
  let syndrome = aeth.syndrome;
  if (!isNak(syndrome) || syndrome == Syndrome.NAK_SEQUENCE || qp.sqTail == qp.sqHead)
    return Counter.drop_ghost_response;
  let wqe = qp.sendWqe(qp.sqTail);
  if (!wqe.isStarted || wqe.opcode != WrOpcode.RDMA_READ || psnDiff(psn, wqe.firstPsn) < 0)
    return Counter.drop_ghost_response;
  if (!isPlausibleMsn(qp, aeth.msn)) return Counter.drop_implausible_nak;
  qp.lastSyndrome = <u8>syndrome;
  failByNak(qp, psn, syndrome);
  return NO_DROP;
}

/** The peer rejects the oldest request. */
function failByNak(qp: Qp, psn: u32, syndrome: u32): void {
  let status = WcStatus.REM_OP_ERR;
  if (syndrome == Syndrome.NAK_INVALID_REQUEST) {
    status = WcStatus.REM_INV_REQ_ERR;
    qp.count(Counter.req_remote_invalid_request);
  } else if (syndrome == Syndrome.NAK_REMOTE_ACCESS) {
    status = WcStatus.REM_ACCESS_ERR;
    qp.count(Counter.req_remote_access_errors);
  }
  failSend(qp, status, syndrome, psn);
}

/**
 * Returns the READ or atomic work request that this packet responds to; the packet acknowledges everything before it.
 * Returns null when an earlier response is missing, or when the oldest request has another operation, which fails it.
 */
function matchResponse(qp: Qp, packet: Packet): SendWqe {
  let psn = packet.psn;
  if (!completeUpTo(qp, psnAdd(psn, -1))) {
    impliedNak(qp);
    return changetype<SendWqe>(0);
  }
  if (qp.state == QpState.ERR) return changetype<SendWqe>(0);
  let wqe = qp.sendWqe(qp.sqTail);
  let fits = isReadResponse(packet.opcode)
    ? wqe.opcode == WrOpcode.RDMA_READ || hasEmptyResponse(wqe.opcode)
    : isAtomicWr(wqe.opcode);
  if (fits) {
    if (hasAeth(packet.opcode)) updateCredits(qp, packet.aeth);
    return wqe;
  }
  failSend(qp, WcStatus.BAD_RESP_ERR, 0, psn);
  return changetype<SendWqe>(0);
}

function receiveReadResponse(qp: Qp, packet: Packet): Counter {
  let psn = packet.psn;
  if (psnDiff(psn, qp.unackedPsn) < 0) return Counter.drop_ghost_response;
  if (hasAeth(packet.opcode) && packet.aeth.syndrome >> 5 != AethClass.ACK) return Counter.drop_reserved_syndrome;
  let wqe = matchResponse(qp, packet);
  if (changetype<usize>(wqe) == 0) return Counter.drop_response_order;
  let offset = ((psn - wqe.firstPsn) & 0xffffff) * qp.mtu;
  let last = psn == wqe.lastPsn;
  // placed by its PSN; where the peer began its retransmission decides between FIRST and MIDDLE, LAST and ONLY (a
  // response in parts has a LAST packet at the end of each part)
  if (last ? !isLast(packet.opcode) : isLast(packet.opcode) && !wqe.isSplit) {
    failSend(qp, WcStatus.BAD_RESP_ERR, 0, psn);
    return NO_DROP;
  }
  let bytes = hasEmptyResponse(wqe.opcode) ? 0 : last ? wqe.length - offset : qp.mtu;
  if (packet.payloadBytes != bytes) {
    failSend(qp, WcStatus.LOC_LEN_ERR, 0, psn);
    return NO_DROP;
  }
  if (!scatter(Card.get().keys, qp.pd, wqe.sges, wqe.sgeCount, offset, packet.payload, bytes)) {
    failSend(qp, WcStatus.LOC_PROT_ERR, 0, psn);
    return NO_DROP;
  }
  if (qp.isNextReadPartInFlight && psnAdd(psn, 1) == wqe.partPsn) {
    qp.isNextReadPartInFlight = false;
    qp.rdAtomicInFlight--;
  }
  finishResponse(qp, psn, last);
  return NO_DROP;
}

function receiveAtomicAck(qp: Qp, packet: Packet): Counter {
  if (psnDiff(packet.psn, qp.unackedPsn) < 0) return Counter.drop_ghost_response;
  if (packet.aeth.syndrome >> 5 != AethClass.ACK) return Counter.drop_reserved_syndrome;
  let wqe = matchResponse(qp, packet);
  if (changetype<usize>(wqe) == 0) return Counter.drop_response_order;
  // the application gets the original value in host byte order (IBTA 9.4.5.2)
  let original = packet.atomicAckEth.ptr;
  store<u64>(original, bswap<u64>(load<u64>(original)));
  if (!scatter(Card.get().keys, qp.pd, wqe.sges, wqe.sgeCount, 0, original, 8)) {
    failSend(qp, WcStatus.LOC_PROT_ERR, 0, packet.psn);
    return NO_DROP;
  }
  finishResponse(qp, packet.psn, true);
  return NO_DROP;
}

/** The response packet with this PSN is placed; it may be the last of its request. */
function finishResponse(qp: Qp, psn: u32, last: bool): void {
  let before = qp.unackedPsn;
  qp.unackedPsn = psnAdd(psn, 1);
  if (last) {
    qp.rdAtomicInFlight--;
    retireSend(qp);
  }
  advanceUnacked(qp, before);
}
