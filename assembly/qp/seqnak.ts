// Sequence NAKs, of the requester. A gap in front of the peer is a loss, or a packet that others have overtaken. A loss
// is answered at once: everything from the gap on is sent again. Where the gap fills by itself, that was needless, and
// the window was halved for nothing. The requester notices when the peer acknowledges the missing packet sooner than
// the one that was sent again can have been answered. It then takes the cut back, and waits with further NAKs for as
// long as such packets are late. Losses shorten the wait again, down to none.
//
// Waiting helps only if the peer keeps what arrives behind a gap (reorder.ts). Go-back-N drops it, and has to get it
// again in any case: such a peer never acknowledges all that was sent before its NAK without a retransmission. A first
// wait therefore puts the peer on trial, and after each one in vain the next takes twice as many gaps that filled by
// themselves. While the requester waits it sends nothing new: the missing packet is the next one that the peer gets
// (IBTA 9.7.5.2.8).
import { RetransmitReason } from '../codes';
import { Counter } from '../counters';
import { Card } from '../host/card';
import { psnDiff } from '../wire/psn';
import { noteLoss } from './adaptive';
import { Qp } from './qp';
import { retransmitAgain, retry } from './retry';
import { armTimer } from './timer';
import { restartSlowStart, restoreWindow } from './window';

/** Nanoseconds. A shorter wait is none. */
const MIN_WAIT: u32 = 1000;
/** Longer times count as this one, so that the arithmetic fits 32 bits. */
const MAX_LATE: u64 = 1 << 30;
/** After so many waits in vain the peer is taken to drop what arrives behind a gap. */
const MAX_USELESS_WAITS: u8 = 8;

/** Returns whether the missing packet is waited for: nothing is sent before a NAK is answered. */
export function isAwaitingMissing(qp: Qp): bool {
  return qp.nakDeadline != 0;
}

/** The peer misses the oldest packet, which is `psn`. */
export function receiveSequenceNak(qp: Qp, psn: u32): void {
  qp.count(Counter.rcvd_seq_err);
  if (qp.nakDeadline != 0) return;
  if (qp.isNakRetried) return retransmitAgain(qp, RetransmitReason.SEQUENCE_NAK);
  let now = Card.get().now;
  qp.nakAt = now;
  if (!isWaitUseful(qp, now)) return retransmitMissing(qp, psn);
  qp.nakDeadline = now + qp.reorderWait;
  armTimer(qp);
  if (qp.isReorderTrial) return;
  qp.isReorderTrial = true;
  qp.trialPsn = qp.unsentPsn;
}

/** Returns whether the missing packet may still come. On trial, nothing that was sent again may be on its way. */
function isWaitUseful(qp: Qp, now: u64): bool {
  if (qp.reorderWait == 0 || (qp.ackDeadline != 0 && now + qp.reorderWait >= qp.ackDeadline)) return false;
  return qp.peerBuffersAhead || psnDiff(qp.unackedPsn, qp.recoverPsn) >= 0;
}

function retransmitMissing(qp: Qp, psn: u32): void {
  let now = Card.get().now;
  // a packet that was sent at about the time of the one which made the peer send the NAK, or long before it
  if (qp.rttStart != 0) qp.nakRtt = <u32>min<u64>(now - qp.rttStart, qp.srtt == 0 ? MAX_LATE : <u64>qp.srtt);
  noteLoss(qp);
  qp.isNakRetried = true;
  qp.isReorderTrial = false;
  qp.retransmittedAt = now;
  retry(qp, psn, RetransmitReason.SEQUENCE_NAK);
}

/** The missing packet has not come by itself. */
export function expireNakWait(qp: Qp, now: u64): void {
  if (qp.nakDeadline == 0 || qp.nakDeadline > now) return;
  qp.nakDeadline = 0;
  if (!qp.peerBuffersAhead) {
    qp.reorderWait = 0;
    qp.selfFilledGaps = 0;
    if (qp.uselessWaits != MAX_USELESS_WAITS) qp.uselessWaits++;
  }
  retransmitMissing(qp, qp.unackedPsn);
}

/** The peer has acknowledged the packet that it missed. */
export function noteGapFilled(qp: Qp): void {
  if (qp.isReorderTrial && psnDiff(qp.unackedPsn, qp.trialPsn) >= 0) {
    qp.isReorderTrial = false;
    // until now each such gap has cut the window
    if (!qp.peerBuffersAhead) restartSlowStart(qp);
    qp.peerBuffersAhead = true;
  }
  if (qp.nakDeadline != 0) {
    qp.nakDeadline = 0;
    return adaptWait(qp);
  }
  if (!qp.isNakRetried) return;
  qp.isNakRetried = false;
  if (Card.get().now - qp.retransmittedAt < <u64>(qp.nakRtt >> 1)) {
    restoreWindow(qp);
    if (qp.peerBuffersAhead) adaptWait(qp);
    else if (qp.uselessWaits != MAX_USELESS_WAITS && ++qp.selfFilledGaps >> qp.uselessWaits != 0)
      qp.reorderWait = max(qp.nakRtt, <u32>qp.srtt);
  } else {
    qp.reorderWait -= qp.reorderWait >> 2;
    if (qp.reorderWait < MIN_WAIT) qp.reorderWait = 0;
  }
}

/** The wait follows the latest packets: at once if they are later than before, and slowly if they are not. */
function adaptWait(qp: Qp): void {
  let late = min(Card.get().now - qp.nakAt, MAX_LATE);
  qp.reorderWait = max(<u32>(late + (late >> 2)), qp.reorderWait - (qp.reorderWait >> 4));
}
