// The repeated ACK, of the responder. Some ACKs come early: they cover packets that the peer may be about to send
// again. So does the ACK of what has waited behind a gap (reorder.ts), and that of a duplicate. When an early ACK
// arrives between two packets of a retransmission, rxe stops its timer and sends nothing more; its work requests never
// complete. Any further ACK sets it going again. The responder therefore repeats an early ACK, once, when nothing new
// has come for a while. Other peers take it for a credit update, which repeats the newest ACK too (IBTA 9.7.7.2.4).
import { DecisionKind } from '../codes';
import { Card } from '../host/card';
import { Syndrome } from '../wire/aeth';
import { recordDecision } from './decisions';
import { PendingAck, Qp, SentNak } from './qp';
import { schedule } from './schedule';
import { armTimer } from './timer';

/** Nanoseconds: the usual ACK timeout, after which a peer whose timer runs has sent again. */
const SILENCE: u64 = 4096 << 14;

/** The ACK of `psn` covers packets behind the one that has caused it. */
export function noteEarlyAck(qp: Qp, psn: u32): void {
  qp.repeatPsn = psn;
  qp.repeatEPsn = qp.ePsn;
  qp.repeatDeadline = Card.get().now + SILENCE;
  armTimer(qp);
}

/** Nothing may have come since the early ACK. */
export function expireRepeatAck(qp: Qp, now: u64): void {
  if (qp.repeatDeadline == 0 || qp.repeatDeadline > now) return;
  qp.repeatDeadline = 0;
  let isSilent = qp.ePsn == qp.repeatEPsn && qp.reorderFirst == 0 && qp.sentNak == SentNak.NONE;
  if (!isSilent || qp.pendingAck != PendingAck.NONE || qp.activeResources != 0) return;
  recordDecision(qp, DecisionKind.ACK_REPEATED, 0, qp.repeatPsn, 0, 0);
  qp.setPendingAck(PendingAck.SEND, Syndrome.ACK, qp.repeatPsn);
  schedule(qp);
}
