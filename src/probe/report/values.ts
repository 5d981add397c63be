/** Measured values as text. */
import { ago } from '../ladder/follow.js';
import type { Distribution } from './distribution.js';

/** Returns a value with its unit. */
export const valueText = (value: number, unit: Distribution['unit']): string =>
  unit === 'ns' ? ago(value) : String(value);

/** Returns a distribution in a line. */
export function distributionText({ unit, count, min, median, p99, max }: Distribution): string {
  const value = (number: number) => valueText(number, unit);
  if (min === max) return `${count} ${count === 1 ? 'value' : 'values'}: ${value(min)}`;
  return `${count} values: min ${value(min)}, median ${value(median)}, p99 ${value(p99)}, max ${value(max)}`;
}
