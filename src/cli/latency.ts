/** Statistics of the times that many repetitions took. */

/** Microseconds. */
export interface Latency {
  readonly min: number;
  readonly median: number;
  readonly p90: number;
  readonly p99: number;
  readonly p999: number;
  readonly max: number;
}

/** Returns the statistics of times. @param times milliseconds, as from performance.now; sorted in place */
export function latencyOf(times: Float64Array): Latency {
  times.sort();
  // Nearest rank: a percentile is always a measured time.
  const at = (part: number) => round((times[Math.max(0, Math.ceil(part * times.length) - 1)] ?? 0) * 1000);
  return { min: at(0), median: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1) };
}

function round(microseconds: number): number {
  return Math.round(microseconds * 100) / 100;
}
