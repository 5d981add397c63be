/** Statistics over several rounds. */
import type { Latency } from '../work.js';

/** Median and range of several rounds. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** @throws RangeError without values */
export function spread(values: readonly number[]): Spread {
  if (values.length === 0) throw new RangeError('the median of nothing');
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] as number;
  const median = sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] as number) + upper) / 2;
  return { median, min: sorted[0] as number, max: sorted[sorted.length - 1] as number };
}

export function median(values: readonly number[]): number {
  return spread(values).median;
}

/** @param times milliseconds, sorted in place. Nearest rank, so that every percentile is a measured time. */
export function latencyOf(times: Float64Array): Latency {
  times.sort();
  const at = (part: number) => (times[Math.max(0, Math.ceil(part * times.length) - 1)] ?? 0) * 1000;
  return {
    count: times.length,
    min: at(0),
    median: at(0.5),
    p90: at(0.9),
    p99: at(0.99),
    p999: at(0.999),
    max: at(1),
  };
}
