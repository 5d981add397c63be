// The settings of congestion control, one set for the whole card.
import { CongestionParameter } from '../layout';
import { CONGESTION } from '../limits';

export function parameter(which: CongestionParameter): f64 {
  return load<f64>(CONGESTION + ((<usize>which) << 3));
}

export function setParameter(which: CongestionParameter, value: f64): void {
  store<f64>(CONGESTION + ((<usize>which) << 3), value);
}

/** The published values; those of rate and time as Linux' drivers have them where the paper has none. */
export function initCongestion(): void {
  setParameter(CongestionParameter.ENABLED, 1);
  setParameter(CongestionParameter.CNP_INTERVAL, 50_000);
  setParameter(CongestionParameter.CNP_DSCP, 48);
  setParameter(CongestionParameter.ALPHA_INTERVAL, 55_000);
  setParameter(CongestionParameter.RATE_INTERVAL, 55_000);
  setParameter(CongestionParameter.BYTE_STEP, 10_000_000);
  setParameter(CongestionParameter.FAST_RECOVERY, 5);
  setParameter(CongestionParameter.GAIN, 1.0 / 256.0);
  setParameter(CongestionParameter.ADDITIVE_RATE, 40e6);
  setParameter(CongestionParameter.HYPER_RATE, 400e6);
  setParameter(CongestionParameter.LEAST_RATE, 1e6);
  setParameter(CongestionParameter.LINE_RATE, 10e9);
}
