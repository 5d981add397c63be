// How many packets a queue pair keeps in flight. There is no flow control below us: a software peer drops what does not
// fit its socket buffer, and go-back-N then repeats everything behind the hole. So the window starts small, grows with
// every ACK and halves when a packet was lost (TCP's slow start and congestion avoidance, RFC 5681, in packets).
import { Qp } from './qp';

const FIRST_WINDOW: u32 = 32;
const SMALLEST: u32 = 4;
/** Bytes in flight, and packets, that any peer takes: what Linux' default socket buffer holds, which is what rxe has. */
const SURE_BYTES: u32 = 256 * 1024;
const SURE_PACKETS: u32 = 256;
/** What a peer may show that it takes: several super-packets on the way while as many are being made and looked at. */
const MOST_BYTES: u32 = 768 * 1024;
const MOST_PACKETS: u32 = 768;

function packetsOf(qp: Qp, bytes: u32, packets: u32): u32 {
  return max(SMALLEST, min(packets, bytes / qp.mtu));
}

function sure(qp: Qp): u32 {
  return packetsOf(qp, SURE_BYTES, SURE_PACKETS);
}

export function initWindow(qp: Qp): void {
  qp.window = min(FIRST_WINDOW, sure(qp));
  qp.windowThreshold = sure(qp);
  qp.windowMost = packetsOf(qp, MOST_BYTES, MOST_PACKETS);
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
  qp.window = min(qp.window + 1, qp.windowMost);
}

/** A packet was lost. Where more than any peer takes was in flight, this one takes no more: it is not tried again. */
export function halveWindow(qp: Qp): void {
  if (qp.window > sure(qp)) qp.windowMost = sure(qp);
  qp.windowThreshold = max(SMALLEST, qp.window >> 1);
  qp.window = qp.windowThreshold;
  qp.windowCredit = 0;
}
