// Go-back-N: sets the packet that the requester sends next.
import { psnDiff } from '../wire/psn';
import { Qp } from './qp';

/** Makes `psn` the next packet to send. Work requests that end before it are skipped. */
export function rewind(qp: Qp, psn: u32): void {
  let n = qp.sqTail;
  while (n != qp.sqHead) {
    let wqe = qp.sendWqe(n);
    if (!wqe.isStarted || psnDiff(wqe.lastPsn, psn) >= 0) break;
    n++;
  }
  qp.sqNext = n;
  qp.sendPsn = psn;
  // the first packet requests an ACK, which opens the window for one more packet, and that shows the peer what else was
  // lost; otherwise a burst whose end is lost waits for the ACK timer
  qp.packetsSinceAckReq = qp.window;
  qp.isProbing = false;
  qp.earlyDeadline = 0;
  qp.nakDeadline = 0;
  qp.isReorderTrial = false;
  qp.recoverPsn = qp.unsentPsn;
  qp.rttStart = 0;
}
