// Congestion control by DCQCN (Zhu et al., SIGCOMM 2015; IBTA annex 17.9). A switch marks packets instead of dropping
// them. The receiver of a marked packet sends a congestion notification packet (CNP) to the sender, at most one per
// interval. The sender cuts its rate in proportion to how often CNPs arrive, and raises it again while none arrive.
//
// The rate has a floor, because whoever forges CNPs can take everything above it. Where congestion goes on at the
// floor, the window shrinks instead: many senders to one port thus keep its queue short, and on a short path it costs
// no speed.
//
// A queue pair that never received a CNP has no rate limit. It loses its limit when it was at the line rate for so long
// that alpha, the estimate of congestion, has decayed: unpaced bursts would be marked again at once.
import { QpType } from '../codes';
import { Counter } from '../counters';
import { Card } from '../host/card';
import { congestionParameter, leastRate } from '../host/parameter';
import { CongestionParameter } from '../layout';
import { BTH_BYTES, Bth } from '../wire/bth';
import { Qp } from './qp';
import { schedule } from './schedule';
import { armTimer } from './timer';
import { endSlowStart, shrinkWindow } from './window';

/** Reserved bytes that a CNP has instead of a payload. */
const CNP_BYTES: u32 = 16;
/** Lead of a paced queue pair over its rate, so that it need not be woken for every packet. */
const BURST_NS: f64 = 20_000;

/** A marked packet was received: schedules a CNP, unless one was sent a moment ago. */
export function noteEcnMark(qp: Qp): void {
  qp.count(Counter.np_ecn_marked_roce_packets);
  if (congestionParameter(CongestionParameter.ENABLED) == 0 || Card.get().now < qp.nextCnp) return;
  qp.isCnpDue = true;
  schedule(qp);
}

/** Writes a CNP to `frame`; returns its length, 0 when none is due. */
export function nextCnp(qp: Qp, frame: usize): u32 {
  if (!qp.isCnpDue) return 0;
  qp.isCnpDue = false;
  qp.nextCnp = Card.get().now + <u64>congestionParameter(CongestionParameter.CNP_INTERVAL);
  let bth = qp.path.begin(frame);
  Bth.at(bth).writeCnp(qp.pkey, qp.destQpn);
  memory.fill(bth + BTH_BYTES, 0, CNP_BYTES);
  qp.count(Counter.np_cnp_sent);
  // a traffic class of its own, so that the CNP overtakes the congested traffic; ECN-capable, so that it is marked
  // rather than dropped
  let trafficClass = ((<u32>congestionParameter(CongestionParameter.CNP_DSCP)) << 2) | 2;
  let priority = <u32>congestionParameter(CongestionParameter.CNP_PRIORITY);
  return qp.path.closeInClass(frame, bth + BTH_BYTES + CNP_BYTES, trafficClass, priority);
}

/**
 * A CNP was received: cuts the rate, at most once per interval. Adapters send a CNP every few microseconds, as many as
 * the algorithm expects in one interval count as one.
 */
export function receiveCnp(qp: Qp): void {
  // a switch can have marked only what was sent
  let isForNothing = qp.type == QpType.RC && !isInFlight(qp);
  if (isForNothing || congestionParameter(CongestionParameter.ENABLED) == 0) return qp.count(Counter.rp_cnp_ignored);
  qp.count(Counter.rp_cnp_handled);
  let now = Card.get().now;
  if (qp.rate == 0) {
    qp.rate = congestionParameter(CongestionParameter.LINE_RATE);
    qp.targetRate = qp.rate;
    qp.alpha = 1;
    qp.paceAt = now;
  } else if (now < qp.nextCut) return;
  qp.nextCut = now + <u64>congestionParameter(CongestionParameter.CUT_INTERVAL);
  endSlowStart(qp);
  // cuts in a row keep the target: it is a rate that the path once had, not one that was cut already
  if ((qp.timerSteps | qp.byteSteps) != 0) qp.targetRate = qp.rate;
  let least = leastRate();
  if (qp.rate <= least) shrinkWindow(qp);
  qp.rate = max(qp.rate * (1 - qp.alpha / 2), least);
  let gain = congestionParameter(CongestionParameter.GAIN);
  qp.alpha = (1 - gain) * qp.alpha + gain;
  qp.timerSteps = 0;
  qp.byteSteps = 0;
  qp.stepBytes = 0;
  qp.alphaDeadline = now + <u64>congestionParameter(CongestionParameter.ALPHA_INTERVAL);
  qp.rateDeadline = now + <u64>congestionParameter(CongestionParameter.RATE_INTERVAL);
  armTimer(qp);
}

/** Returns whether packets are known to be in flight; of UC none are. */
function isInFlight(qp: Qp): bool {
  return qp.unackedPsn != qp.unsentPsn;
}

/** Returns whether the rate forbids sending a data packet now; a timer then wakes the queue pair. */
export function isPaced(qp: Qp): bool {
  if (qp.rate == 0) return false;
  let now = Card.get().now;
  if (qp.paceAt <= now + <u64>BURST_NS) return false;
  qp.paceDeadline = qp.paceAt;
  qp.wasPaced = true;
  armTimer(qp);
  return true;
}

/** Charges a sent data packet to the rate. */
export function chargeRate(qp: Qp, bytes: u32): void {
  if (qp.rate == 0) return;
  qp.paceAt = max(qp.paceAt, Card.get().now) + <u64>((<f64>bytes * 8e9) / qp.rate);
  qp.stepBytes += bytes;
  if (<f64>qp.stepBytes < congestionParameter(CongestionParameter.BYTE_STEP)) return;
  qp.stepBytes = 0;
  qp.byteSteps++;
  increaseRate(qp);
}

/** Handles the deadlines of congestion control that have passed. */
export function expireCongestion(qp: Qp, now: u64): void {
  if (qp.paceDeadline != 0 && qp.paceDeadline <= now) {
    qp.paceDeadline = 0;
    schedule(qp);
  }
  if (qp.alphaDeadline != 0 && qp.alphaDeadline <= now) {
    qp.alpha *= 1 - congestionParameter(CongestionParameter.GAIN);
    qp.alphaDeadline = now + <u64>congestionParameter(CongestionParameter.ALPHA_INTERVAL);
  }
  if (qp.rateDeadline != 0 && qp.rateDeadline <= now) {
    qp.rateDeadline = now + <u64>congestionParameter(CongestionParameter.RATE_INTERVAL);
    // what limits a queue pair with packets in flight is the window if not the rate: nothing is known of a higher rate
    if (isInFlight(qp) && !qp.wasPaced) return;
    qp.wasPaced = false;
    qp.timerSteps++;
    increaseRate(qp);
  }
}

/**
 * Raises the rate: for a few steps halfway back to the rate before the last cut, then above it in equal steps, then in
 * growing steps.
 */
function increaseRate(qp: Qp): void {
  let few = <u32>congestionParameter(CongestionParameter.FAST_RECOVERY);
  if (max(qp.timerSteps, qp.byteSteps) > few) {
    let least = min(qp.timerSteps, qp.byteSteps);
    qp.targetRate +=
      least > few
        ? <f64>(least - few) * congestionParameter(CongestionParameter.HYPER_RATE)
        : congestionParameter(CongestionParameter.ADDITIVE_RATE);
  }
  let line = congestionParameter(CongestionParameter.LINE_RATE);
  qp.targetRate = min(qp.targetRate, line);
  qp.rate = (qp.rate + qp.targetRate) / 2;
  if (qp.rate >= line * 0.999 && qp.alpha < congestionParameter(CongestionParameter.GAIN)) endRateLimit(qp);
}

/** Removes the rate limit. */
export function endRateLimit(qp: Qp): void {
  resetRate(qp);
  schedule(qp);
}

function resetRate(qp: Qp): void {
  qp.rate = 0;
  qp.alphaDeadline = 0;
  qp.rateDeadline = 0;
  qp.paceDeadline = 0;
}

/** Resets both ends' state: the next connection may take another path. */
export function resetCongestion(qp: Qp): void {
  resetRate(qp);
  qp.isCnpDue = false;
  qp.nextCnp = 0;
}
