// How many packets a queue pair keeps in flight. There is no flow control below us: a software peer drops what does not
// fit its socket buffer, and go-back-N then repeats everything behind the hole. So the window starts small, grows with
// every ACK and halves when a packet was lost (TCP's slow start and congestion avoidance, RFC 5681, in packets).
import { Qp } from './qp';

const FIRST_WINDOW: u32 = 32;
const SMALLEST: u32 = 4;
/** Bytes in flight at the most, and packets. Linux' default socket buffer, which is what rxe has, holds about this many. */
const MOST_BYTES: u32 = 256 * 1024;
const MOST_PACKETS: u32 = 256;

function limit(qp: Qp): u32 {
  return max(SMALLEST, min(MOST_PACKETS, MOST_BYTES / qp.mtu));
}

export function initWindow(qp: Qp): void {
  qp.window = min(FIRST_WINDOW, limit(qp));
  qp.windowThreshold = limit(qp);
  qp.windowCredit = 0;
}

/** `packets` more are acknowledged. */
export function growWindow(qp: Qp, packets: u32): void {
  if (qp.window < qp.windowThreshold) {
    qp.window = min(qp.window + packets, qp.windowThreshold);
    return;
  }
  qp.windowCredit += packets;
  if (qp.windowCredit < qp.window) return;
  qp.windowCredit = 0;
  qp.window = min(qp.window + 1, limit(qp));
}

/** A packet was lost. */
export function halveWindow(qp: Qp): void {
  qp.windowThreshold = max(SMALLEST, qp.window >> 1);
  qp.window = qp.windowThreshold;
  qp.windowCredit = 0;
}
