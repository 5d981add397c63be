// The responder of a reliable connection (IBTA 9.7.4, 9.7.5): keeps the peer's requests in order, has each examined and carried
// out, and notes what is to be answered. The answers are sent by nextAnswer (answerer.ts), so that they keep their order.
import { Counter, NO_DROP } from '../counters';
import { Card } from '../host/card';
import { EventType, QpState, WcStatus } from '../limits';
import { Syndrome } from '../wire/aeth';
import { isAnswered, isAtomic, isRead, isReserved, isSend } from '../wire/opcode';
import { Packet } from '../wire/packet';
import { packetCount, psnAdd, psnDiff } from '../wire/psn';
import { completeRecv } from './complete';
import { examine, Fault } from './examine';
import { execute, startBlank, startJob } from './execute';
import { Answer, Expect, Qp } from './qp';
import { activate, findResult, firstResultBehind, forgetAged } from './result';
import { schedule } from './schedule';
import { setState } from './state';

/** The peer speaks for the first time: the user may want to know, if he waits with his own part (IBTA 11.6.3.2). */
export function noteContact(qp: Qp): void {
  if (qp.hasReceived) return;
  qp.hasReceived = true;
  if (qp.state == QpState.RTR) Card.get().events.raise(EventType.COMM_EST, qp.ptr);
}

/** Answers why the packet was dropped, or NO_DROP. */
export function receiveRequest(qp: Qp, packet: Packet): Counter {
  if (qp.answer == Answer.SPEAK_AND_FAIL) return Counter.drop_after_fault;
  noteContact(qp);
  let ahead = psnDiff(packet.psn, qp.ePsn);
  if (ahead > 0) return receiveAhead(qp);
  if (ahead < 0) return receiveDuplicate(qp, packet);
  qp.isNakSaid = false;
  // a NAK for this very packet that has not gone out yet has become untrue: an ACK takes its place
  let isOwed = qp.answer == Answer.SPEAK && qp.answerSyndrome != Syndrome.ACK;
  if (isOwed) qp.answer = Answer.NONE;
  let fault = examine(qp, packet);
  if (fault == Fault.NONE) fault = execute(qp, packet);
  // a completion queue that is full has ended the queue pair without a word (class G)
  if (qp.state == QpState.ERR) return NO_DROP;
  if (fault != Fault.NONE) refuse(qp, packet, fault);
  else acknowledge(qp, packet, isOwed);
  forgetAged(qp);
  return NO_DROP;
}

/** A gap: say so once, then be silent until it is filled (IBTA 9.7.5.2.2). */
function receiveAhead(qp: Qp): Counter {
  if (qp.isNakSaid) return Counter.drop_psn_ahead;
  qp.isNakSaid = true;
  qp.count(Counter.out_of_seq_request);
  say(qp, Answer.SPEAK, Syndrome.NAK_SEQUENCE, qp.ePsn);
  return NO_DROP;
}

/** Notes an ACK where one is asked for; READ and atomic are acknowledged by their answers. */
function acknowledge(qp: Qp, packet: Packet, isOwed: bool): void {
  let opcode = packet.opcode;
  if (isAnswered(opcode)) schedule(qp);
  else if (packet.isAckRequested || isOwed) say(qp, Answer.SPEAK, Syndrome.ACK, packet.psn);
}

/** IBTA 9.7.5.1.4: what has been carried out already is answered again, not done again. */
function receiveDuplicate(qp: Qp, packet: Packet): Counter {
  let opcode = packet.opcode;
  qp.count(Counter.duplicate_request);
  if (isReserved(opcode)) return Counter.drop_duplicate_unknown;
  if (isRead(opcode)) return repeatRead(qp, packet);
  if (isAnswered(opcode)) return repeatOther(qp, packet);
  // not beyond a READ or atomic: its answer may have been lost, and an ACK behind it would say so too early
  let newest = psnAdd(firstResultBehind(qp, packet.psn, qp.ePsn), -1);
  // what is still to be said counts for more: a NAK acknowledges as much, and so does the ACK of something newer
  if (qp.answer != Answer.NONE && (qp.answerSyndrome != Syndrome.ACK || psnDiff(qp.answerPsn, newest) >= 0))
    return NO_DROP;
  say(qp, Answer.SPEAK, Syndrome.ACK, newest);
  return NO_DROP;
}

/** Carried out afresh: the memory may hold something newer. The range must lie in that of the first request. */
function repeatRead(qp: Qp, packet: Packet): Counter {
  let result = findResult(qp, packet.psn);
  if (changetype<usize>(result) == 0 || result.isAtomic || result.isBlank) return Counter.drop_duplicate_unknown;
  let reth = packet.reth;
  let offset = reth.va - result.va;
  if (reth.rkey != result.rkey || offset > <u64>result.length || <u64>reth.length > <u64>result.length - offset)
    return Counter.drop_duplicate_unknown;
  let last = psnAdd(packet.psn, packetCount(reth.length, qp.mtu) - 1);
  if (psnDiff(last, result.lastPsn) > 0) return Counter.drop_duplicate_unknown;
  startJob(qp, result, packet);
  result.isRepeated = true;
  schedule(qp);
  return NO_DROP;
}

/** Atomic, ATOMIC WRITE, FLUSH: the answer that was kept. */
function repeatOther(qp: Qp, packet: Packet): Counter {
  let result = findResult(qp, packet.psn);
  if (changetype<usize>(result) == 0 || result.isAtomic != isAtomic(packet.opcode))
    return Counter.drop_duplicate_unknown;
  if (result.isAtomic) activate(qp, result);
  else if (result.isBlank) startBlank(qp, result);
  else return Counter.drop_duplicate_unknown;
  result.isRepeated = true;
  schedule(qp);
  return NO_DROP;
}

function say(qp: Qp, answer: Answer, syndrome: u32, psn: u32): void {
  qp.answer = answer;
  qp.answerSyndrome = <u8>syndrome;
  qp.answerPsn = psn;
  schedule(qp);
}

/** The table of IBTA 9.9.3: what the peer is told and what becomes of our side. */
function refuse(qp: Qp, packet: Packet, fault: Fault): void {
  let psn = packet.psn;
  let events = Card.get().events;
  if (fault == Fault.NOT_READY) {
    // what is in flight behind it is dropped in silence, as behind a gap
    qp.isNakSaid = true;
    qp.count(Counter.send_rnr_err);
    return say(qp, Answer.SPEAK, Syndrome.RNR | qp.minRnrTimer, psn);
  }
  if (fault == Fault.NO_ROOM) {
    receiveAhead(qp);
    return;
  }
  if (fault == Fault.KEY) {
    qp.count(Counter.resp_remote_access_errors);
    events.raise(EventType.QP_ACCESS_ERR, qp.ptr);
    return say(qp, Answer.SPEAK_AND_FAIL, Syndrome.NAK_REMOTE_ACCESS, psn);
  }
  if (fault == Fault.LOCAL_MEMORY) {
    completeRecv(qp, packet, 0, WcStatus.LOC_PROT_ERR);
    return say(qp, Answer.SPEAK_AND_FAIL, Syndrome.NAK_REMOTE_OPERATION, psn);
  }
  if (fault == Fault.INVALIDATE) {
    completeRecv(qp, packet, 0, WcStatus.REM_INV_REQ_ERR);
    if (packet.isAckRequested) return say(qp, Answer.SPEAK_AND_FAIL, Syndrome.ACK, psn);
    // an ACK of what came before still goes out
    if (qp.answer == Answer.SPEAK) qp.answer = Answer.SPEAK_AND_FAIL;
    else setState(qp, QpState.ERR);
    return;
  }
  qp.count(Counter.resp_remote_invalid_request);
  // a receive work request that the message was arriving in tells of it; otherwise an event does
  if (fault == Fault.LENGTH && isSend(packet.opcode)) completeRecv(qp, packet, 0, WcStatus.LOC_LEN_ERR);
  else if (qp.expect == Expect.SEND) completeRecv(qp, packet, 0, WcStatus.LOC_QP_OP_ERR);
  else events.raise(fault == Fault.NOT_ENABLED ? EventType.QP_ACCESS_ERR : EventType.QP_REQ_ERR, qp.ptr);
  say(qp, Answer.SPEAK_AND_FAIL, Syndrome.NAK_INVALID_REQUEST, psn);
}
