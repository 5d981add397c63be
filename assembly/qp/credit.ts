// End-to-end flow control of RC queue pairs (IBTA 9.7.7.2). With each ACK the responder advertises for how many
// messages it has receive WQEs. The requester sends no message beyond that, which would only cause an RNR NAK.
//
// Both sides count messages, READs and WRITEs included: the requester when it starts one (SSN), the responder when one
// is complete (MSN). MSN plus credits is the last message that may be sent (LSN); a message that needs no receive
// increments LSN by one.
//
// When receives are posted after the last credit was used, the responder sends an unsolicited ACK, which may be lost. A
// requester without credits may therefore send one more message, and its ACK or RNR NAK settles the question (IBTA
// 9.7.7.2.5). At the start of a connection it sends that message at once, later only after an ACK timeout without
// credits.

import { QpState, WrOpcode } from '../codes';
import { Counter } from '../counters';
import { Card } from '../host/card';
import { SendWqe } from '../host/wqe';
import { Aeth, creditCode, creditsOf, NO_LIMIT, Syndrome } from '../wire/aeth';
import { psnAdd, psnDiff } from '../wire/psn';
import { Qp } from './qp';
import { schedule } from './schedule';
import { armTimer } from './timer';
import { needsReceive } from './wropcode';

/** `Qp.advertised` before the first advertisement: no peer waits for a credit update. */
const NOT_ADVERTISED: u32 = 0xffffffff;

/** Starts a connection: neither end knows anything of the other. */
export function initCredits(qp: Qp): void {
  qp.ssn = 0;
  qp.advertised = NOT_ADVERTISED;
  resetLimit(qp);
}

/** Switches flow control on or off, at any time. */
export function setFlowControl(qp: Qp, isOn: bool): void {
  qp.flowControl = isOn;
  qp.advertised = NOT_ADVERTISED;
  resetLimit(qp);
  if (qp.state == QpState.RTS) schedule(qp);
}

function resetLimit(qp: Qp): void {
  qp.lsn = qp.ssn;
  qp.hasUnlimitedCredits = false;
  qp.canSendUncredited = true;
  qp.isWaitingForCredits = false;
  qp.creditDeadline = 0;
}

// ---- the requester ----

/** Returns whether the peer has advertised no receive for one more message. */
function isBeyondLimit(qp: Qp): bool {
  return !qp.hasUnlimitedCredits && psnDiff(qp.ssn, qp.lsn) >= 0;
}

/** Returns whether this message may be started. If not, a credit update or the deadline wakes the queue pair. */
export function hasCredit(qp: Qp, wqe: SendWqe): bool {
  if (!qp.flowControl || !needsReceive(wqe.opcode) || !isBeyondLimit(qp) || qp.canSendUncredited) return true;
  if (!qp.isWaitingForCredits) {
    qp.isWaitingForCredits = true;
    qp.count(Counter.rc_crwaits);
  }
  // an ACK of the packets in flight will carry credits; with none in flight a credit update may have been lost
  if (qp.unackedPsn != qp.allocPsn || qp.creditDeadline != 0) return false;
  if (qp.timeout == 0) return true;
  qp.creditDeadline = Card.get().now + ((<u64>4096) << qp.timeout);
  armTimer(qp);
  return false;
}

/** A send work request is started. */
export function noteMessageStarted(qp: Qp, wqe: SendWqe): void {
  if (!needsReceive(wqe.opcode)) return advanceSsnAndLsn(qp);
  if (qp.flowControl && isBeyondLimit(qp)) {
    wqe.isUncredited = true;
    qp.canSendUncredited = false;
  }
  qp.ssn = psnAdd(qp.ssn, 1);
  if (!qp.flowControl) return;
  qp.isWaitingForCredits = false;
  qp.creditDeadline = 0;
}

/** Counts a message that needs no receive; the parts of a READ are messages of their own. */
export function advanceSsnAndLsn(qp: Qp): void {
  qp.ssn = psnAdd(qp.ssn, 1);
  qp.lsn = psnAdd(qp.lsn, 1);
}

/**
 * Returns whether the rest of an uncredited message has to wait: the first packet alone finds out whether the peer has
 * a receive. Of a WRITE, only the last packet needs a receive.
 */
export function mustAwaitFirstAck(qp: Qp, wqe: SendWqe): bool {
  if (!wqe.isUncredited || wqe.opcode == WrOpcode.RDMA_WRITE_WITH_IMM) return false;
  return qp.sendPsn != wqe.firstPsn && psnDiff(qp.unackedPsn, wqe.firstPsn) <= 0;
}

/** Returns whether this PSN is that of the newest acknowledged packet: an ACK of it carries nothing but credits. */
export function isCreditUpdate(qp: Qp, psn: u32): bool {
  return psn == psnAdd(qp.unackedPsn, -1);
}

/** Takes the credits of an ACK. Returns whether they allow more messages than before. */
export function updateCredits(qp: Qp, aeth: Aeth): bool {
  if (!qp.flowControl) return false;
  let code = aeth.syndrome & 31;
  if (code == NO_LIMIT) {
    let isNew = !qp.hasUnlimitedCredits;
    qp.hasUnlimitedCredits = true;
    return isNew;
  }
  // an MSN ahead of all messages sent is invalid
  if (psnDiff(aeth.msn, qp.ssn) > 0) return false;
  qp.canSendUncredited = false;
  let limit = psnAdd(aeth.msn, creditsOf(code));
  // credits are never taken back: receives stay posted, and an older ACK may arrive late
  if (!qp.hasUnlimitedCredits && psnDiff(limit, qp.lsn) <= 0) return false;
  qp.hasUnlimitedCredits = false;
  qp.lsn = limit;
  return true;
}

/** Returns how many messages that need a receive may be started; 0xffffffff when no limit is known. */
export function creditsLeft(qp: Qp): u32 {
  if (!qp.flowControl || qp.hasUnlimitedCredits || qp.canSendUncredited) return 0xffffffff;
  return isBeyondLimit(qp) ? 0 : psnDiff(qp.lsn, qp.ssn);
}

/** The deadline for a credit update has passed. */
export function expireCreditWait(qp: Qp, now: u64): void {
  if (qp.creditDeadline == 0 || qp.creditDeadline > now) return;
  qp.creditDeadline = 0;
  qp.canSendUncredited = true;
  schedule(qp);
}

// ---- the responder ----

/** Returns the syndrome of an ACK that is sent now. Receives of a shared queue are not advertised (IBTA 9.7.7.2.2). */
export function creditSyndrome(qp: Qp): u32 {
  if (!qp.flowControl || qp.rq.isShared) return Syndrome.ACK;
  // MSN does not count the message that is arriving, and its receive WQE is already taken
  let code = creditCode(qp.rq.filled + (qp.hasRecvWqe ? 1 : 0));
  qp.advertised = creditsOf(code);
  return code;
}

/** A receive that may have been advertised is used. */
export function consumeCredit(qp: Qp): void {
  let advertised = qp.advertised;
  if (advertised == 0 || advertised == NOT_ADVERTISED) return;
  qp.advertised = advertised - 1;
  if (hasCreditUpdate(qp)) schedule(qp);
}

/** Returns whether the peer may be waiting for receives that are posted. */
export function hasCreditUpdate(qp: Qp): bool {
  return qp.flowControl && qp.advertised == 0 && !qp.rq.isShared && !qp.rq.isEmpty;
}
