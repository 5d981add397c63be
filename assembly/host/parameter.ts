// The parameters of congestion control, one set for the whole card.
import { CongestionParameter } from '../layout';
import { CONGESTION } from '../memorymap';

export function congestionParameter(which: CongestionParameter): f64 {
  return load<f64>(CONGESTION + ((<usize>which) << 3));
}

export function setCongestionParameter(which: CongestionParameter, value: f64): void {
  store<f64>(CONGESTION + ((<usize>which) << 3), value);
}

/** The published values of DCQCN; rates and steps are those that share 10 Gbit/s best (test/net/congestion.test.ts). */
export function initCongestion(): void {
  setCongestionParameter(CongestionParameter.ENABLED, 1);
  setCongestionParameter(CongestionParameter.CNP_INTERVAL, 50_000);
  setCongestionParameter(CongestionParameter.CNP_DSCP, 48);
  setCongestionParameter(CongestionParameter.CNP_PRIORITY, 6);
  setCongestionParameter(CongestionParameter.CUT_INTERVAL, 50_000);
  setCongestionParameter(CongestionParameter.ALPHA_INTERVAL, 55_000);
  setCongestionParameter(CongestionParameter.RATE_INTERVAL, 75_000);
  setCongestionParameter(CongestionParameter.BYTE_STEP, 1_000_000);
  setCongestionParameter(CongestionParameter.FAST_RECOVERY, 5);
  setCongestionParameter(CongestionParameter.GAIN, 1.0 / 256.0);
  setCongestionParameter(CongestionParameter.ADDITIVE_RATE, 20e6);
  setCongestionParameter(CongestionParameter.HYPER_RATE, 200e6);
  setCongestionParameter(CongestionParameter.LINE_RATE, 10e9);
}

/** The lowest rate, in bit/s. By default it is a tenth of the line rate: forged CNPs cannot take more. */
export function leastRate(): f64 {
  let least = congestionParameter(CongestionParameter.LEAST_RATE);
  return least != 0 ? least : congestionParameter(CongestionParameter.LINE_RATE) / 10;
}
