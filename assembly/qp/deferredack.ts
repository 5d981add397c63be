// The deferred ACK, of the responder. A peer that has got a sequence NAK sends everything from the gap on again, also
// what has waited here behind the gap (reorder.ts). An ACK of all that comes while it does so covers packets that it is
// about to send again, and so does one of all that was executed when it sends old packets again. rxe does not bear
// that: it may stop its timer and wait for ever, or send its next message again from a wrong packet on, one PSN too
// late. Its requests have MigReq 0. They are acknowledged as far as they have come in the order in which it sends them.
// When nothing comes for a while, the rest was lost on its second way, and the ACK of all is sent.
//
// Other peers get the ACK at once: it spares them what they have not sent again yet, and one whose requester waits
// for an overtaken packet (seqnak.ts) sends nothing again.
import { DecisionKind } from '../codes';
import { Card } from '../host/card';
import { Syndrome } from '../wire/aeth';
import { Packet } from '../wire/packet';
import { recordDecision } from './decisions';
import { PendingAck, Qp, SentNak } from './qp';
import { schedule } from './schedule';
import { armTimer } from './timer';

/** Nanoseconds: the usual ACK timeout, after which a peer whose timer runs has sent again. */
const SILENCE: u64 = 4096 << 14;

/** Returns whether the sender of this request gets no ACK of packets that it may be about to send again. */
export function needsAcksInOrder(packet: Packet): bool {
  return !packet.bth.migReq;
}

/** Packets up to `psn` were executed and are not acknowledged yet. */
export function deferAck(qp: Qp, psn: u32): void {
  qp.deferredPsn = psn;
  qp.deferredEPsn = qp.ePsn;
  qp.deferredDeadline = Card.get().now + SILENCE;
  armTimer(qp);
}

/** The peer has sent everything again that it may. */
export function releaseAck(qp: Qp): void {
  qp.deferredDeadline = 0;
}

/** Returns whether an ACK is deferred. A new packet ends that: the peer has sent all before it. */
export function isAckDeferred(qp: Qp): bool {
  return qp.deferredDeadline != 0 && qp.deferredEPsn == qp.ePsn;
}

/** The peer may have sent everything again, and the rest was lost. */
export function expireDeferredAck(qp: Qp, now: u64): void {
  if (qp.deferredDeadline == 0 || qp.deferredDeadline > now) return;
  let isDue = isAckDeferred(qp) && qp.reorderFirst == 0 && qp.sentNak == SentNak.NONE;
  qp.deferredDeadline = 0;
  // credits may have waited for the ACK
  schedule(qp);
  if (!isDue || qp.pendingAck != PendingAck.NONE || qp.activeResources != 0) return;
  recordDecision(qp, DecisionKind.ACK_DEFERRED, 0, qp.deferredPsn, 0, 0);
  qp.setPendingAck(PendingAck.SEND, Syndrome.ACK, qp.deferredPsn);
}
