// The in-flight window of a queue pair in packets. There is no flow control below RC: a software peer drops what does
// not fit its socket buffer, and go-back-N then retransmits everything behind the hole. So the window starts small,
// grows with every ACK and halves with every loss (TCP's slow start and congestion avoidance, RFC 5681, in packets).
import { QpState } from '../codes';
import { MAX_WINDOW } from '../limits';
import { Qp } from './qp';
import { schedule } from './schedule';

const INITIAL_WINDOW: u32 = 32;
const MIN_WINDOW: u32 = 4;
/** Congestion without loss shrinks the window to this at most: on a short path it costs no speed. */
const CONGESTED_WINDOW: u32 = 16;
/** Bytes and packets in flight that any peer can take: Linux' default socket buffer, which is that of rxe. */
const SAFE_BYTES: u32 = 256 * 1024;
const SAFE_PACKETS: u32 = 256;
/** The bytes of the largest window. */
const MAX_WINDOW_BYTES: u32 = MAX_WINDOW * 1024;

function windowOf(qp: Qp, bytes: u32, packets: u32): u32 {
  return min(qp.windowLimit, max(MIN_WINDOW, min(packets, bytes / qp.mtu)));
}

function safeWindow(qp: Qp): u32 {
  return windowOf(qp, SAFE_BYTES, SAFE_PACKETS);
}

export function initWindow(qp: Qp): void {
  qp.window = min(INITIAL_WINDOW, safeWindow(qp));
  qp.windowThreshold = safeWindow(qp);
  qp.maxWindow = windowOf(qp, MAX_WINDOW_BYTES, MAX_WINDOW);
  qp.ackedSinceGrowth = 0;
}

/**
 * Limits the window to 1 to MAX_WINDOW packets. What is in flight stays in flight, with room for one packet behind
 * those that have requested no ACK. A window that may grow again grows as at the start.
 */
export function limitWindow(qp: Qp, packets: u32): void {
  qp.windowLimit = packets;
  // initWindow applies the limit to a queue pair that is not connected yet
  if (qp.mtu == 0) return;
  qp.maxWindow = windowOf(qp, MAX_WINDOW_BYTES, MAX_WINDOW);
  qp.windowThreshold = safeWindow(qp);
  qp.window = min(qp.window, max(qp.maxWindow, qp.packetsSinceAckReq + 1));
  if (qp.state == QpState.RTS) schedule(qp);
}

/** Grows the window: `packets` more are acknowledged. */
export function growWindow(qp: Qp, packets: u32): void {
  if (qp.window < qp.windowThreshold) {
    qp.window = min(qp.window + packets, qp.windowThreshold);
    return;
  }
  qp.ackedSinceGrowth += packets;
  if (qp.ackedSinceGrowth < qp.window) return;
  qp.ackedSinceGrowth = 0;
  qp.window = min(qp.window + 1, qp.maxWindow);
}

/** The path is congested without a loss: from here on the window grows slowly. */
export function endSlowStart(qp: Qp): void {
  qp.windowThreshold = min(qp.windowThreshold, qp.window);
}

/**
 * The rate is as low as it may be and the path is still congested. Room for one packet stays behind those that have
 * requested no ACK, because no ACK would open the window again.
 */
export function shrinkWindow(qp: Qp): void {
  let most = max(max(CONGESTED_WINDOW, qp.window >> 1), qp.packetsSinceAckReq + 1);
  qp.window = min(qp.window, most);
  qp.windowThreshold = qp.window;
  qp.ackedSinceGrowth = 0;
}

/**
 * Halves the window after a loss. If more than the safe window was in flight, the peer cannot take more, and the window
 * stays at or below it.
 */
export function halveWindow(qp: Qp): void {
  qp.windowBefore = qp.window;
  qp.thresholdBefore = qp.windowThreshold;
  if (qp.window > safeWindow(qp)) qp.maxWindow = safeWindow(qp);
  qp.windowThreshold = min(qp.windowLimit, max(MIN_WINDOW, qp.window >> 1));
  qp.window = qp.windowThreshold;
  qp.ackedSinceGrowth = 0;
}

/** Takes the last halving back: there was no loss. */
export function restoreWindow(qp: Qp): void {
  qp.window = max(qp.window, min(qp.windowBefore, qp.maxWindow));
  qp.windowThreshold = min(qp.maxWindow, max(qp.windowThreshold, qp.thresholdBefore));
}

/** The last window cut was spurious: undo it and grow as in slow start. */
export function restartSlowStart(qp: Qp): void {
  qp.windowThreshold = safeWindow(qp);
}
