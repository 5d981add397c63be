// Congestion control by DCQCN (Zhu et al., SIGCOMM 2015; IBTA annex 17.9). A switch marks packets instead of dropping them; the
// end that receives a marked packet asks its sender to slow down with a congestion notification packet (CNP), at most one in a
// while; the sender cuts its rate by a measure of how often it is asked, and grows it again while it is left alone.
//
// A queue pair that was never asked has no rate and is not held up.
import { Counter } from '../counters';
import { Card } from '../host/card';
import { parameter } from '../host/parameter';
import { CongestionParameter } from '../layout';
import { BTH_BYTES, Bth } from '../wire/bth';
import { Qp } from './qp';
import { schedule } from './schedule';
import { armed } from './timer';

/** Reserved bytes that a CNP has in place of a payload. */
const CNP_BYTES: u32 = 16;
/** A queue pair that is held up may run so far ahead of its rate, so that it need not be woken for every packet. */
const BURST_NS: f64 = 20_000;

/** A marked packet has come: its sender is to be told, unless it was told a moment ago. */
export function noteMarked(qp: Qp): void {
  qp.count(Counter.np_ecn_marked_roce_packets);
  if (parameter(CongestionParameter.ENABLED) == 0 || Card.get().now < qp.nextCnp) return;
  qp.isCnpDue = true;
  schedule(qp);
}

/** Writes a CNP to `frame`; answers its length, 0 when none is due. */
export function nextCnp(qp: Qp, frame: usize): u32 {
  if (!qp.isCnpDue) return 0;
  qp.isCnpDue = false;
  qp.nextCnp = Card.get().now + <u64>parameter(CongestionParameter.CNP_INTERVAL);
  let bth = qp.path.begin(frame);
  Bth.at(bth).writeCnp(qp.pkey, qp.destQpn);
  memory.fill(bth + BTH_BYTES, 0, CNP_BYTES);
  qp.count(Counter.np_cnp_sent);
  // a class of its own, so that it overtakes what it is about; itself not to be dropped but marked
  let trafficClass = ((<u32>parameter(CongestionParameter.CNP_DSCP)) << 2) | 2;
  return qp.path.closeAs(frame, bth + BTH_BYTES + CNP_BYTES, trafficClass);
}

/** The peer asks us to slow down. */
export function receiveCnp(qp: Qp): void {
  if (parameter(CongestionParameter.ENABLED) == 0) return qp.count(Counter.rp_cnp_ignored);
  qp.count(Counter.rp_cnp_handled);
  if (qp.rate == 0) {
    qp.rate = parameter(CongestionParameter.LINE_RATE);
    qp.alpha = 1;
    qp.paceAt = Card.get().now;
  }
  qp.targetRate = qp.rate;
  qp.rate = max(qp.rate * (1 - qp.alpha / 2), parameter(CongestionParameter.LEAST_RATE));
  let gain = parameter(CongestionParameter.GAIN);
  qp.alpha = (1 - gain) * qp.alpha + gain;
  qp.timerSteps = 0;
  qp.byteSteps = 0;
  qp.stepBytes = 0;
  let now = Card.get().now;
  qp.alphaDeadline = now + <u64>parameter(CongestionParameter.ALPHA_INTERVAL);
  qp.rateDeadline = now + <u64>parameter(CongestionParameter.RATE_INTERVAL);
  armed(qp);
}

/** Whether the queue pair's rate forbids a data packet now; it is woken when it may go on. */
export function isHeldUp(qp: Qp): bool {
  if (qp.rate == 0) return false;
  let now = Card.get().now;
  if (qp.paceAt <= now + <u64>BURST_NS) return false;
  qp.paceDeadline = qp.paceAt;
  armed(qp);
  return true;
}

/** A data packet of so many bytes has been sent. */
export function noteSent(qp: Qp, bytes: u32): void {
  if (qp.rate == 0) return;
  qp.paceAt = max(qp.paceAt, Card.get().now) + <u64>((<f64>bytes * 8e9) / qp.rate);
  qp.stepBytes += bytes;
  if (<f64>qp.stepBytes < parameter(CongestionParameter.BYTE_STEP)) return;
  qp.stepBytes = 0;
  qp.byteSteps++;
  increase(qp);
}

/** Deadlines of congestion control that have passed. */
export function expireCongestion(qp: Qp, now: u64): void {
  if (qp.paceDeadline != 0 && qp.paceDeadline <= now) {
    qp.paceDeadline = 0;
    schedule(qp);
  }
  if (qp.alphaDeadline != 0 && qp.alphaDeadline <= now) {
    qp.alpha *= 1 - parameter(CongestionParameter.GAIN);
    qp.alphaDeadline = now + <u64>parameter(CongestionParameter.ALPHA_INTERVAL);
  }
  if (qp.rateDeadline != 0 && qp.rateDeadline <= now) {
    qp.rateDeadline = now + <u64>parameter(CongestionParameter.RATE_INTERVAL);
    qp.timerSteps++;
    increase(qp);
  }
}

/** Back to half the way of the last cut a few times, then above it in steps, then in growing steps. */
function increase(qp: Qp): void {
  let few = <u32>parameter(CongestionParameter.FAST_RECOVERY);
  if (max(qp.timerSteps, qp.byteSteps) > few) {
    let least = min(qp.timerSteps, qp.byteSteps);
    qp.targetRate +=
      least > few
        ? <f64>(least - few) * parameter(CongestionParameter.HYPER_RATE)
        : parameter(CongestionParameter.ADDITIVE_RATE);
  }
  let line = parameter(CongestionParameter.LINE_RATE);
  qp.targetRate = min(qp.targetRate, line);
  qp.rate = (qp.rate + qp.targetRate) / 2;
  if (qp.rate < line * 0.999) return;
  release(qp);
}

/** The queue pair has no rate any more. */
export function release(qp: Qp): void {
  forgetRate(qp);
  schedule(qp);
}

function forgetRate(qp: Qp): void {
  qp.rate = 0;
  qp.alphaDeadline = 0;
  qp.rateDeadline = 0;
  qp.paceDeadline = 0;
}

/** Nothing is left of what either end was told: the next connection may go another way. */
export function forgetCongestion(qp: Qp): void {
  forgetRate(qp);
  qp.isCnpDue = false;
  qp.nextCnp = 0;
}
