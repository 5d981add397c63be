// The responder: carries out the peer's requests (IBTA 9.7.4). A ladder of checks in the order of the specification: the first
// that fails names the fault. Answers are noted here and sent by nextAnswer (answerer.ts), so that they keep their order.
import { Counter, NO_DROP } from '../counters';
import { Card } from '../host/card';
import { Mr } from '../host/mr';
import { scatter } from '../host/wqe';
import { Access, Errno, EventType, MAX_MESSAGE, QpState, WcStatus } from '../limits';
import { Syndrome } from '../wire/aeth';
import {
  hasImm,
  hasInvalidate,
  isAtomic,
  isFirst,
  isLast,
  isRead,
  isReserved,
  isSend,
  isWrite,
  Opcode,
} from '../wire/opcode';
import { Packet } from '../wire/packet';
import { packetCount, psnAdd, psnDiff } from '../wire/psn';
import { completeRecv } from './complete';
import { Answer, Expect, Qp } from './qp';
import { activate, findResult, firstResultBehind, newResult, Result } from './result';
import { schedule } from './schedule';
import { setState } from './state';

/** Why a request is not carried out. */
enum Fault {
  NONE,
  /** NAK invalid request. */
  RESERVED_OPCODE,
  OPCODE_SEQUENCE,
  NOT_ENABLED,
  TOO_MANY,
  LENGTH,
  MISALIGNED,
  /** NAK remote access error. */
  KEY,
  /** NAK remote operational error. */
  LOCAL_MEMORY,
  /** RNR NAK. */
  NOT_READY,
  /** Nothing is said: the message has arrived, its key cannot be closed. */
  INVALIDATE,
}

/** Answers why the packet was dropped, or NO_DROP. */
export function receiveRequest(qp: Qp, packet: Packet): Counter {
  if (qp.answer == Answer.SPEAK_AND_FAIL) return Counter.drop_after_fault;
  if (!qp.hasReceived) {
    qp.hasReceived = true;
    if (qp.state == QpState.RTR) Card.get().events.raise(EventType.COMM_EST, qp.ptr);
  }
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

/** The packet with the PSN that is expected, before anything is changed by it. */
function examine(qp: Qp, packet: Packet): Fault {
  let fault = checkSequence(qp, packet.opcode);
  if (fault == Fault.NONE) fault = checkEnabled(qp, packet.opcode);
  if (fault == Fault.NONE) fault = checkResources(qp, packet.opcode);
  if (fault == Fault.NONE) fault = checkLength(qp, packet);
  if (fault == Fault.NONE) fault = checkKey(qp, packet);
  return fault;
}

/** IBTA 9.7.4.1.3 */
function checkSequence(qp: Qp, opcode: u32): Fault {
  if (isReserved(opcode)) return Fault.RESERVED_OPCODE;
  let expected = isFirst(opcode) ? Expect.FIRST : isSend(opcode) ? Expect.SEND : Expect.WRITE;
  return qp.expect == expected ? Fault.NONE : Fault.OPCODE_SEQUENCE;
}

function rightFor(opcode: u32): u32 {
  if (isWrite(opcode)) return Access.REMOTE_WRITE;
  if (isRead(opcode)) return Access.REMOTE_READ;
  return isAtomic(opcode) ? Access.REMOTE_ATOMIC : 0;
}

function checkEnabled(qp: Qp, opcode: u32): Fault {
  let right = rightFor(opcode);
  return (qp.access & right) == right ? Fault.NONE : Fault.NOT_ENABLED;
}

/** Whether this packet needs a receive work request: a SEND with its first packet, a WRITE with its immediate data. */
function takesReceive(opcode: u32): bool {
  return isSend(opcode) ? isFirst(opcode) : isWrite(opcode) && hasImm(opcode);
}

function checkResources(qp: Qp, opcode: u32): Fault {
  if ((isRead(opcode) || isAtomic(opcode)) && qp.maxDestRdAtomic == 0) return Fault.TOO_MANY;
  return takesReceive(opcode) && qp.rqTail == qp.rqHead ? Fault.NOT_READY : Fault.NONE;
}

/** IBTA 9.7.4.1.6 */
function checkLength(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  let bytes = packet.payloadBytes;
  if (isRead(opcode)) return packet.reth.length > MAX_MESSAGE ? Fault.LENGTH : Fault.NONE;
  if (isAtomic(opcode)) return packet.atomicEth.va & 7 ? Fault.MISALIGNED : Fault.NONE;
  if (!isLast(opcode)) {
    if (bytes != qp.mtu) return Fault.LENGTH;
  } else if (bytes > qp.mtu || (bytes == 0 && !isFirst(opcode))) {
    return Fault.LENGTH;
  }
  if (isSend(opcode)) {
    let before: u32 = isFirst(opcode) ? 0 : qp.received;
    return <u64>before + <u64>bytes > <u64>qp.recvWqe(qp.rqTail).length ? Fault.LENGTH : Fault.NONE;
  }
  let left = isFirst(opcode) ? packet.reth.length : qp.writeLeft;
  if (left > MAX_MESSAGE) return Fault.LENGTH;
  return (isLast(opcode) ? bytes == left : bytes < left) ? Fault.NONE : Fault.LENGTH;
}

/** IBTA 9.7.4.1.5. A message without bytes touches no memory, so its key is not looked at. */
function checkKey(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  let keys = Card.get().keys;
  if (isAtomic(opcode)) {
    let eth = packet.atomicEth;
    return Mr.remote(keys, eth.rkey, qp.pd, eth.va, 8, Access.REMOTE_ATOMIC) != 0 ? Fault.NONE : Fault.KEY;
  }
  if (isSend(opcode)) return Fault.NONE;
  let right = rightFor(opcode);
  if (isFirst(opcode)) {
    let reth = packet.reth;
    let length = reth.length;
    return length == 0 || Mr.remote(keys, reth.rkey, qp.pd, reth.va, length, right) != 0 ? Fault.NONE : Fault.KEY;
  }
  // the region may have gone since the first packet
  return Mr.remote(keys, qp.writeRkey, qp.pd, qp.writeVa, qp.writeLeft, right) != 0 ? Fault.NONE : Fault.KEY;
}

function execute(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  if (isSend(opcode)) return executeSend(qp, packet);
  if (isWrite(opcode)) return executeWrite(qp, packet);
  return isRead(opcode) ? executeRead(qp, packet) : executeAtomic(qp, packet);
}

function executeSend(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  let wqe = qp.recvWqe(qp.rqTail);
  if (isFirst(opcode)) qp.received = 0;
  if (!scatter(Card.get().keys, qp.pd, wqe.pieces, wqe.sgeCount, qp.received, packet.payload, packet.payloadBytes))
    return Fault.LOCAL_MEMORY;
  qp.received += packet.payloadBytes;
  qp.expect = Expect.SEND;
  if (isLast(opcode)) {
    if (hasInvalidate(opcode) && Mr.invalidate(Card.get().keys, packet.invalidateRkey, qp.pd) != Errno.OK)
      return Fault.INVALIDATE;
    endMessage(qp);
    completeRecv(qp, packet, qp.received, WcStatus.SUCCESS);
    qp.count(Counter.rdma_recvs);
  }
  qp.ePsn = psnAdd(qp.ePsn, 1);
  return Fault.NONE;
}

function executeWrite(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  if (isFirst(opcode)) {
    qp.writeVa = packet.reth.va;
    qp.writeRkey = packet.reth.rkey;
    qp.writeLeft = qp.writeLength = packet.reth.length;
    qp.count(Counter.rx_write_requests);
  }
  let bytes = packet.payloadBytes;
  if (bytes != 0)
    memory.copy(
      Mr.remote(Card.get().keys, qp.writeRkey, qp.pd, qp.writeVa, bytes, Access.REMOTE_WRITE),
      packet.payload,
      bytes,
    );
  qp.writeVa += bytes;
  qp.writeLeft -= bytes;
  qp.expect = Expect.WRITE;
  if (isLast(opcode)) {
    endMessage(qp);
    if (hasImm(opcode)) completeRecv(qp, packet, qp.writeLength, WcStatus.SUCCESS);
  }
  qp.ePsn = psnAdd(qp.ePsn, 1);
  return Fault.NONE;
}

function executeRead(qp: Qp, packet: Packet): Fault {
  let result = newResult(qp);
  if (changetype<usize>(result) == 0) return Fault.TOO_MANY;
  let reth = packet.reth;
  let packets = packetCount(reth.length, qp.mtu);
  result.va = reth.va;
  result.rkey = reth.rkey;
  result.length = reth.length;
  result.firstPsn = packet.psn;
  result.lastPsn = psnAdd(packet.psn, packets - 1);
  startJob(qp, result, packet);
  qp.ePsn = psnAdd(packet.psn, packets);
  endMessage(qp);
  qp.count(Counter.rx_read_requests);
  return Fault.NONE;
}

/** The answer to this READ request, which may be for the rest of an earlier one, is to be sent. */
function startJob(qp: Qp, result: Result, packet: Packet): void {
  let reth = packet.reth;
  result.jobFirst = packet.psn;
  result.jobNext = packet.psn;
  result.jobLast = psnAdd(packet.psn, packetCount(reth.length, qp.mtu) - 1);
  result.jobVa = reth.va;
  result.jobLength = reth.length;
  activate(qp, result);
}

function executeAtomic(qp: Qp, packet: Packet): Fault {
  let result = newResult(qp);
  if (changetype<usize>(result) == 0) return Fault.TOO_MANY;
  let eth = packet.atomicEth;
  let ptr = Mr.remote(Card.get().keys, eth.rkey, qp.pd, eth.va, 8, Access.REMOTE_ATOMIC);
  result.isAtomic = true;
  result.firstPsn = result.lastPsn = packet.psn;
  result.original =
    packet.opcode == Opcode.COMPARE_SWAP ? compareSwap(ptr, eth.compare, eth.swapAdd) : fetchAdd(ptr, eth.swapAdd);
  activate(qp, result);
  qp.ePsn = psnAdd(qp.ePsn, 1);
  endMessage(qp);
  qp.count(Counter.rx_atomic_requests);
  return Fault.NONE;
}

/** Atomic also against other threads where the memory is aligned; a region may map an aligned address to any pointer. */
function compareSwap(ptr: usize, compare: u64, swap: u64): u64 {
  if ((ptr & 7) == 0) return atomic.cmpxchg<u64>(ptr, compare, swap);
  let original = load<u64>(ptr);
  if (original == compare) store<u64>(ptr, swap);
  return original;
}

function fetchAdd(ptr: usize, add: u64): u64 {
  if ((ptr & 7) == 0) return atomic.add<u64>(ptr, add);
  let original = load<u64>(ptr);
  store<u64>(ptr, original + add);
  return original;
}

function endMessage(qp: Qp): void {
  qp.expect = Expect.FIRST;
  qp.msn = psnAdd(qp.msn, 1);
}

/** Notes an ACK where one is asked for; READ and atomic are acknowledged by their answers. */
function acknowledge(qp: Qp, packet: Packet, isOwed: bool): void {
  let opcode = packet.opcode;
  if (isRead(opcode) || isAtomic(opcode)) schedule(qp);
  else if (packet.isAckRequested || isOwed) say(qp, Answer.SPEAK, Syndrome.ACK, packet.psn);
}

/** IBTA 9.7.5.1.4: what has been carried out already is answered again, not done again. */
function receiveDuplicate(qp: Qp, packet: Packet): Counter {
  let opcode = packet.opcode;
  qp.count(Counter.duplicate_request);
  if (isReserved(opcode)) return Counter.drop_duplicate_unknown;
  if (isRead(opcode)) return repeatRead(qp, packet);
  if (isAtomic(opcode)) return repeatAtomic(qp, packet);
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
  if (changetype<usize>(result) == 0 || result.isAtomic) return Counter.drop_duplicate_unknown;
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

function repeatAtomic(qp: Qp, packet: Packet): Counter {
  let result = findResult(qp, packet.psn);
  if (changetype<usize>(result) == 0 || !result.isAtomic) return Counter.drop_duplicate_unknown;
  activate(qp, result);
  result.isRepeated = true;
  schedule(qp);
  return NO_DROP;
}

function say(qp: Qp, answer: Answer, syndrome: u32, psn: u32): void {
  qp.answer = answer;
  qp.answerSyndrome = syndrome;
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
    return setState(qp, QpState.ERR);
  }
  qp.count(Counter.resp_remote_invalid_request);
  // a receive work request that the message was arriving in tells of it; otherwise an event does
  if (fault == Fault.LENGTH && isSend(packet.opcode)) completeRecv(qp, packet, 0, WcStatus.LOC_LEN_ERR);
  else if (qp.expect == Expect.SEND) completeRecv(qp, packet, 0, WcStatus.LOC_QP_OP_ERR);
  else events.raise(fault == Fault.NOT_ENABLED ? EventType.QP_ACCESS_ERR : EventType.QP_REQ_ERR, qp.ptr);
  say(qp, Answer.SPEAK_AND_FAIL, Syndrome.NAK_INVALID_REQUEST, psn);
}
