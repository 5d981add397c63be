// The completer: takes the peer's answers (IBTA 9.7.5.1) - ACK, NAK, RNR NAK, READ response, atomic ACK - and retires send
// work requests by them.
import { Counter, NO_DROP } from '../counters';
import { Card } from '../host/card';
import { SendWqe, scatter } from '../host/wqe';
import { QpState, WcStatus, WrOpcode } from '../limits';
import { AethClass, Syndrome } from '../wire/aeth';
import { hasAeth, isLast, isReadResponse, Opcode } from '../wire/opcode';
import { Packet } from '../wire/packet';
import { psnAdd, psnDiff } from '../wire/psn';
import { endProbe, noteAnswered, noteLost } from './adaptive';
import { failSend, retireSend } from './complete';
import { isNews, takeCredits } from './credit';
import { Qp } from './qp';
import { isAtomicWr, isBlankWr, isRdAtomic } from './requester';
import { resetRetries, restart, retry, retryAfterRnr, rewind } from './retry';
import { schedule } from './schedule';
import { reportDrained } from './state';
import { growWindow } from './window';

/** Answers why the packet was dropped, or NO_DROP. */
export function receiveResponse(qp: Qp, packet: Packet): Counter {
  let psn = packet.psn;
  // an answer to something that was never asked
  if (psnDiff(psn, qp.wirePsn) >= 0) return Counter.drop_ghost_response;
  let drop = isReadResponse(packet.opcode)
    ? receiveRead(qp, packet)
    : packet.opcode == Opcode.ATOMIC_ACKNOWLEDGE
      ? receiveAtomic(qp, packet)
      : receiveAck(qp, packet);
  if (qp.state == QpState.ERR) return drop;
  reportDrained(qp);
  schedule(qp);
  return drop;
}

/** Everything up to `psn` has arrived at the peer: work requests that end there or before are done. False when the answer
 * of a READ or atomic in front of it is missing: that answer alone can say that it is done (IBTA 9.7.5.1.3). */
function acknowledge(qp: Qp, psn: u32): bool {
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
  if (qp.unackedPsn != before) progress(qp, before);
  return complete;
}

/** The oldest PSN without answer has moved on from `before`. */
function progress(qp: Qp, before: u32): void {
  if (qp.state == QpState.ERR) return;
  resetRetries(qp);
  qp.isReadRetried = false;
  // what the peer was not ready for, it has taken after all
  qp.rnrDeadline = 0;
  growWindow(qp, <u32>psnDiff(qp.unackedPsn, before));
  // packets that were about to be repeated have arrived after all
  if (qp.isProbing) endProbe(qp);
  else if (psnDiff(qp.unackedPsn, qp.sendPsn) > 0) rewind(qp, qp.unackedPsn);
  restart(qp);
  noteAnswered(qp);
}

/** An answer that should have come before this one did not: ask again from the first that is missing, once. */
function impliedNak(qp: Qp): Counter {
  if (!qp.isReadRetried && qp.rnrDeadline == 0) {
    qp.isReadRetried = true;
    qp.count(Counter.implied_nak_seq_err);
    noteLost(qp);
    retry(qp, qp.unackedPsn);
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
      return isNews(qp, psn) && takeCredits(qp, packet.aeth) ? NO_DROP : Counter.drop_ghost_response;
    takeCredits(qp, packet.aeth);
    return acknowledge(qp, psn) ? NO_DROP : impliedNak(qp);
  }
  if (psnDiff(psn, qp.unackedPsn) < 0) return receiveOld(qp, psn, syndrome);
  // a NAK acknowledges what comes before it
  if (!acknowledge(qp, psnAdd(psn, -1))) return impliedNak(qp);
  if (qp.state == QpState.ERR) return NO_DROP;
  if (qp.rnrDeadline != 0) return Counter.drop_rnr_wait;
  qp.lastSyndrome = <u8>syndrome;
  if (kind == AethClass.RNR) {
    qp.count(Counter.rcvd_rnr_err);
    retryAfterRnr(qp, psn, syndrome & 31);
  } else if (syndrome == Syndrome.NAK_SEQUENCE) {
    qp.count(Counter.rcvd_seq_err);
    noteLost(qp);
    retry(qp, psn);
  } else {
    refuse(qp, psn, syndrome);
  }
  return NO_DROP;
}

function isNak(syndrome: u32): bool {
  return syndrome >= <u32>Syndrome.NAK_SEQUENCE && syndrome <= <u32>Syndrome.NAK_REMOTE_OPERATION;
}

/** An answer older than the oldest that is due: of interest only when the peer gives up a READ in the middle and names
 * its request (rxe does), which is one for a part of it where the READ is asked for in parts, or again from its middle. */
function receiveOld(qp: Qp, psn: u32, syndrome: u32): Counter {
  if (!isNak(syndrome) || syndrome == Syndrome.NAK_SEQUENCE || qp.sqTail == qp.sqHead)
    return Counter.drop_ghost_response;
  let wqe = qp.sendWqe(qp.sqTail);
  if (!wqe.isStarted || wqe.opcode != WrOpcode.RDMA_READ || psnDiff(psn, wqe.firstPsn) < 0)
    return Counter.drop_ghost_response;
  qp.lastSyndrome = <u8>syndrome;
  refuse(qp, psn, syndrome);
  return NO_DROP;
}

/** The peer will not carry out the oldest request. */
function refuse(qp: Qp, psn: u32, syndrome: u32): void {
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

/** The READ or atomic that this packet must answer, everything before it being acknowledged by it. Null when an earlier
 * answer is missing, or this is no answer to the oldest request, which then has failed. */
function answered(qp: Qp, packet: Packet): SendWqe {
  let psn = packet.psn;
  if (!acknowledge(qp, psnAdd(psn, -1))) {
    impliedNak(qp);
    return changetype<SendWqe>(0);
  }
  if (qp.state == QpState.ERR) return changetype<SendWqe>(0);
  let wqe = qp.sendWqe(qp.sqTail);
  let fits = isReadResponse(packet.opcode)
    ? wqe.opcode == WrOpcode.RDMA_READ || isBlankWr(wqe.opcode)
    : isAtomicWr(wqe.opcode);
  if (fits) {
    if (hasAeth(packet.opcode)) takeCredits(qp, packet.aeth);
    return wqe;
  }
  failSend(qp, WcStatus.BAD_RESP_ERR, 0, psn);
  return changetype<SendWqe>(0);
}

function receiveRead(qp: Qp, packet: Packet): Counter {
  let psn = packet.psn;
  if (psnDiff(psn, qp.unackedPsn) < 0) return Counter.drop_ghost_response;
  if (hasAeth(packet.opcode) && packet.aeth.syndrome >> 5 != AethClass.ACK) return Counter.drop_reserved_syndrome;
  let wqe = answered(qp, packet);
  if (changetype<usize>(wqe) == 0) return Counter.drop_response_order;
  let offset = ((psn - wqe.firstPsn) & 0xffffff) * qp.mtu;
  let last = psn == wqe.lastPsn;
  // placed by its PSN; FIRST and MIDDLE, LAST and ONLY differ only by where the peer began to repeat
  // (an answer in parts has its LAST at the end of each part)
  if (last ? !isLast(packet.opcode) : isLast(packet.opcode) && !wqe.isSplit) {
    failSend(qp, WcStatus.BAD_RESP_ERR, 0, psn);
    return NO_DROP;
  }
  let bytes = isBlankWr(wqe.opcode) ? 0 : last ? wqe.length - offset : qp.mtu;
  if (packet.payloadBytes != bytes) {
    failSend(qp, WcStatus.LOC_LEN_ERR, 0, psn);
    return NO_DROP;
  }
  if (!scatter(Card.get().keys, qp.pd, wqe.pieces, wqe.sgeCount, offset, packet.payload, bytes)) {
    failSend(qp, WcStatus.LOC_PROT_ERR, 0, psn);
    return NO_DROP;
  }
  if (qp.isPartAhead && psnAdd(psn, 1) == wqe.partPsn) {
    qp.isPartAhead = false;
    qp.rdAtomicInFlight--;
  }
  finish(qp, psn, last);
  return NO_DROP;
}

function receiveAtomic(qp: Qp, packet: Packet): Counter {
  if (psnDiff(packet.psn, qp.unackedPsn) < 0) return Counter.drop_ghost_response;
  if (packet.aeth.syndrome >> 5 != AethClass.ACK) return Counter.drop_reserved_syndrome;
  let wqe = answered(qp, packet);
  if (changetype<usize>(wqe) == 0) return Counter.drop_response_order;
  // the original value goes to the user in the byte order of the host (IBTA 9.4.5.2)
  let original = packet.atomicAckEth.ptr;
  store<u64>(original, bswap<u64>(load<u64>(original)));
  if (!scatter(Card.get().keys, qp.pd, wqe.pieces, wqe.sgeCount, 0, original, 8)) {
    failSend(qp, WcStatus.LOC_PROT_ERR, 0, packet.psn);
    return NO_DROP;
  }
  finish(qp, packet.psn, true);
  return NO_DROP;
}

/** The answer with this PSN is in place; it may be the last of its request. */
function finish(qp: Qp, psn: u32, last: bool): void {
  let before = qp.unackedPsn;
  qp.unackedPsn = psnAdd(psn, 1);
  if (last) {
    qp.rdAtomicInFlight--;
    retireSend(qp);
  }
  progress(qp, before);
}
