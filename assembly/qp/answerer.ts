// The responder's other half: sends the answers that it has noted. READ and atomic answers first, oldest first; an ACK or NAK
// waits for them, because it would acknowledge their requests without the data (IBTA 9.7.5.1.2).
import { Counter } from '../counters';
import { Card } from '../host/card';
import { Mr } from '../host/mr';
import { Access, EventType, QpState } from '../limits';
import { AETH_BYTES, Aeth, Syndrome } from '../wire/aeth';
import { AtomicAckEth } from '../wire/atomiceth';
import { BTH_BYTES, Bth } from '../wire/bth';
import { hasAeth, headerBytes, Opcode } from '../wire/opcode';
import { psnAdd } from '../wire/psn';
import { isHeldUp, noteSent } from './congestion';
import { ackSyndrome, hasNews } from './credit';
import { Answer, Qp } from './qp';
import { deactivate, oldestActive, Result } from './result';
import { setState } from './state';

/** Writes the next answer packet to `frame`; answers its length, 0 when nothing is to be said. */
export function nextAnswer(qp: Qp, frame: usize): u32 {
  if (qp.resultsActive != 0) {
    let result = oldestActive(qp);
    if (result.isAtomic) return answerAtomic(qp, result, frame);
    // the data of a READ keeps to the rate as our own does, and what waits behind it waits along
    if (isHeldUp(qp)) return 0;
    let bytes = answerRead(qp, result, frame);
    noteSent(qp, bytes);
    if (bytes != 0) return bytes;
  }
  if (qp.answer != Answer.NONE) return speak(qp, frame);
  return hasNews(qp) ? tell(qp, frame) : 0;
}

/** An ACK that says nothing new but for how many messages there is room now: it repeats the newest (IBTA 9.7.7.2.4). */
function tell(qp: Qp, frame: usize): u32 {
  qp.answer = Answer.SPEAK;
  qp.answerSyndrome = <u8>Syndrome.ACK;
  qp.answerPsn = psnAdd(qp.ePsn, -1);
  return speak(qp, frame);
}

/** An ACK or NAK. After a NAK that ends the conversation the queue pair is done. */
function speak(qp: Qp, frame: usize): u32 {
  let bth = qp.path.begin(frame);
  Bth.at(bth).write(Opcode.ACKNOWLEDGE, false, 0, qp.pkey, qp.destQpn, false, qp.answerPsn, qp.migReq);
  let isAck = qp.answerSyndrome == Syndrome.ACK;
  Aeth.at(bth + BTH_BYTES).write(isAck ? ackSyndrome(qp) : qp.answerSyndrome, qp.msn);
  let ends = qp.answer == Answer.SPEAK_AND_FAIL;
  qp.answer = Answer.NONE;
  let bytes = qp.path.close(frame, bth + BTH_BYTES + AETH_BYTES);
  if (ends) setState(qp, QpState.ERR);
  return bytes;
}

function answerAtomic(qp: Qp, result: Result, frame: usize): u32 {
  let bth = qp.path.begin(frame);
  Bth.at(bth).write(Opcode.ATOMIC_ACKNOWLEDGE, false, 0, qp.pkey, qp.destQpn, false, result.firstPsn, qp.migReq);
  Aeth.at(bth + BTH_BYTES).write(ackSyndrome(qp), qp.msn);
  AtomicAckEth.at(bth + BTH_BYTES + AETH_BYTES).write(result.original);
  deactivate(qp, result);
  return qp.path.close(frame, bth + headerBytes(Opcode.ATOMIC_ACKNOWLEDGE));
}

/** The next packet of a READ's answer, from the memory as it is now; 0 when the memory is gone. */
function answerRead(qp: Qp, result: Result, frame: usize): u32 {
  let psn = result.jobNext;
  let first = psn == result.jobFirst;
  let last = psn == result.jobLast;
  let opcode = first
    ? last
      ? Opcode.RDMA_READ_RESPONSE_ONLY
      : Opcode.RDMA_READ_RESPONSE_FIRST
    : last
      ? Opcode.RDMA_READ_RESPONSE_LAST
      : Opcode.RDMA_READ_RESPONSE_MIDDLE;
  let offset = ((psn - result.jobFirst) & 0xffffff) * qp.mtu;
  let bytes = min(qp.mtu, result.jobLength - offset);
  let bth = qp.path.begin(frame);
  let payload = bth + headerBytes(opcode);
  if (bytes != 0) {
    let source = Mr.remote(
      Card.get().keys,
      result.rkey,
      qp.pd,
      qp.qpn,
      result.jobVa + offset,
      bytes,
      Access.REMOTE_READ,
    );
    if (source == 0) return giveUp(qp, result);
    memory.copy(payload, source, bytes);
  }
  let pad = -bytes & 3;
  if (pad) store<u32>(payload + bytes, 0);
  Bth.at(bth).write(opcode, false, pad, qp.pkey, qp.destQpn, false, psn, qp.migReq);
  if (hasAeth(opcode)) Aeth.at(bth + BTH_BYTES).write(ackSyndrome(qp), qp.msn);
  result.jobNext = psnAdd(psn, 1);
  if (last) deactivate(qp, result);
  return qp.path.close(frame, payload + bytes + pad);
}

/** The region was taken away while it was being read: NAK the response that cannot be given. */
function giveUp(qp: Qp, result: Result): u32 {
  qp.count(Counter.resp_remote_access_errors);
  Card.get().events.raise(EventType.QP_ACCESS_ERR, qp.ptr);
  qp.answer = Answer.SPEAK_AND_FAIL;
  qp.answerSyndrome = <u8>Syndrome.NAK_REMOTE_ACCESS;
  qp.answerPsn = result.jobNext;
  qp.resultsActive = 0;
  return 0;
}
