/** Measured values in short. */

/** The distribution of measured values. */
export interface Distribution {
  /** Unit of the values. */
  readonly unit: 'ns' | 'count';
  /** Number of values. */
  readonly count: number;
  /** The smallest value. */
  readonly min: number;
  /** The middle value, or the mean of the two in the middle. */
  readonly median: number;
  /** The value that 99 % of the values do not exceed (nearest rank). */
  readonly p99: number;
  /** The largest value. */
  readonly max: number;
}

/** Returns the distribution of some values, or undefined when there are none. */
export function distribution(values: readonly number[], unit: Distribution['unit']): Distribution | undefined {
  const sorted = Float64Array.from(values).sort();
  const at = (index: number) => sorted[index] as number;
  const count = sorted.length;
  if (count === 0) return undefined;
  const median = (at((count - 1) >> 1) + at(count >> 1)) / 2;
  return { unit, count, min: at(0), median, p99: at(Math.ceil(count * 0.99) - 1), max: at(count - 1) };
}
