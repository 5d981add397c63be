// End-to-end flow control of a reliable connection (IBTA 9.7.7.2): with each ACK the responder tells for how many messages it
// has receive work requests, and the requester sends none beyond that, which would only be refused (RNR NAK).
//
// Messages are counted on both sides, READs and WRITEs as well: by the requester when it starts one (SSN), by the responder
// when one is complete (MSN). MSN plus credits is the last message that may be sent (LSN); one that needs no receive moves
// it on by one.
//
// News of receives that were posted after the last credit was used come with an ACK of their own, and may be lost like any
// other: so a requester without credits may send one message more, which the answer to it ends or allows to go on (IBTA
// 9.7.7.2.5). At the start of a connection it does so at once, later when it has waited in vain as long as for an ACK.
import { Counter } from '../counters';
import { Card } from '../host/card';
import { SendWqe } from '../host/wqe';
import { QpState, WrOpcode } from '../limits';
import { Aeth, creditCode, creditsOf, NO_LIMIT, Syndrome } from '../wire/aeth';
import { psnAdd, psnDiff } from '../wire/psn';
import { Qp } from './qp';
import { schedule } from './schedule';
import { armed } from './timer';

/** `Qp.told` before anything was told: nobody waits for news. */
const NOTHING: u32 = 0xffffffff;

/** A connection begins: neither end knows anything of the other. */
export function initCredits(qp: Qp): void {
  qp.ssn = 0;
  qp.told = NOTHING;
  forgetLimit(qp);
}

/** Switches it on or off, at any time. */
export function setFlowControl(qp: Qp, isOn: bool): void {
  qp.flowControl = isOn;
  qp.told = NOTHING;
  forgetLimit(qp);
  if (qp.state == QpState.RTS) schedule(qp);
}

function forgetLimit(qp: Qp): void {
  qp.lsn = qp.ssn;
  qp.isUnlimited = false;
  qp.mayExceed = true;
  qp.isStarved = false;
  qp.creditDeadline = 0;
}

// ---- the requester ----

function needsReceive(opcode: u32): bool {
  return (
    opcode == WrOpcode.SEND ||
    opcode == WrOpcode.SEND_WITH_IMM ||
    opcode == WrOpcode.SEND_WITH_INV ||
    opcode == WrOpcode.RDMA_WRITE_WITH_IMM
  );
}

/** Whether one more message would be more than the peer has room for. */
function isBeyondLimit(qp: Qp): bool {
  return !qp.isUnlimited && psnDiff(qp.ssn, qp.lsn) >= 0;
}

/** Whether this message may be started; if not, news of credits or the deadline will wake the queue pair. */
export function hasCredit(qp: Qp, wqe: SendWqe): bool {
  if (!qp.flowControl || !needsReceive(wqe.opcode) || !isBeyondLimit(qp) || qp.mayExceed) return true;
  if (!qp.isStarved) {
    qp.isStarved = true;
    qp.count(Counter.rc_crwaits);
  }
  // what is in flight will be answered, and the answer tells; behind it news may be lost
  if (qp.unackedPsn != qp.nextPsn || qp.creditDeadline != 0) return false;
  if (qp.timeout == 0) return true;
  qp.creditDeadline = Card.get().now + ((<u64>4096) << qp.timeout);
  armed(qp);
  return false;
}

/** A work request is started. */
export function noteStarted(qp: Qp, wqe: SendWqe): void {
  if (!needsReceive(wqe.opcode)) return noteMessage(qp);
  if (qp.flowControl && isBeyondLimit(qp)) {
    wqe.isLimited = true;
    qp.mayExceed = false;
  }
  qp.ssn = psnAdd(qp.ssn, 1);
  if (!qp.flowControl) return;
  qp.isStarved = false;
  qp.creditDeadline = 0;
}

/** A message that needs no receive is on its way; the parts of a READ are messages of their own. */
export function noteMessage(qp: Qp): void {
  qp.ssn = psnAdd(qp.ssn, 1);
  qp.lsn = psnAdd(qp.lsn, 1);
}

/** Whether the next packet of a message beyond the limit has to wait: the first alone shows whether there is room. Of a WRITE it
 * is the last that needs it. */
export function awaitsRoom(qp: Qp, wqe: SendWqe): bool {
  if (!wqe.isLimited || wqe.opcode == WrOpcode.RDMA_WRITE_WITH_IMM) return false;
  return qp.sendPsn != wqe.firstPsn && psnDiff(qp.unackedPsn, wqe.firstPsn) <= 0;
}

/** Whether this PSN is that of the newest packet that has been acknowledged: what answers it brings news of credits alone. */
export function isNews(qp: Qp, psn: u32): bool {
  return psn == psnAdd(qp.unackedPsn, -1);
}

/** The peer has told for how many messages it has room. True when it is more than was known. */
export function takeCredits(qp: Qp, aeth: Aeth): bool {
  if (!qp.flowControl) return false;
  let code = aeth.syndrome & 31;
  if (code == NO_LIMIT) {
    let isNew = !qp.isUnlimited;
    qp.isUnlimited = true;
    return isNew;
  }
  // an MSN that counts messages which were never sent says nothing
  if (psnDiff(aeth.msn, qp.ssn) > 0) return false;
  qp.mayExceed = false;
  let limit = psnAdd(aeth.msn, creditsOf(code));
  // what was told stays true: receives are not taken back, and an older answer may come late
  if (!qp.isUnlimited && psnDiff(limit, qp.lsn) <= 0) return false;
  qp.isUnlimited = false;
  qp.lsn = limit;
  return true;
}

/** How many messages that need a receive may be started; 0xffffffff when no limit is known. */
export function creditsLeft(qp: Qp): u32 {
  if (!qp.flowControl || qp.isUnlimited || qp.mayExceed) return 0xffffffff;
  return isBeyondLimit(qp) ? 0 : psnDiff(qp.lsn, qp.ssn);
}

/** The deadline for news has passed. */
export function expireCredits(qp: Qp, now: u64): void {
  if (qp.creditDeadline == 0 || qp.creditDeadline > now) return;
  qp.creditDeadline = 0;
  qp.mayExceed = true;
  schedule(qp);
}

// ---- the responder ----

/** The syndrome of an ACK that goes out now. Shared receives are not promised to anybody (IBTA 9.7.7.2.2). */
export function ackSyndrome(qp: Qp): u32 {
  if (!qp.flowControl || qp.rq.isShared) return Syndrome.ACK;
  // MSN does not count the message that is arriving: its receive is there for it
  let code = creditCode(qp.rq.filled + (qp.isHeld ? 1 : 0));
  qp.told = creditsOf(code);
  return code;
}

/** A receive that the peer may have been told of is used up. */
export function useCredit(qp: Qp): void {
  let told = qp.told;
  if (told == 0 || told == NOTHING) return;
  qp.told = told - 1;
  if (hasNews(qp)) schedule(qp);
}

/** Whether the peer may be waiting for receives that are there. */
export function hasNews(qp: Qp): bool {
  return qp.flowControl && qp.told == 0 && !qp.rq.isShared && !qp.rq.isEmpty;
}
