/** Performance targets of the tables (`Subject.targets`), and the verdicts on them. */
import type { Row } from '../rig/rounds.js';
import { type Figure, figure, gbps, medianUs } from './figures.js';
import { digits, type Sheet } from './sheet.js';

/** The result for a target: the value, and the contender or the case that it is of. */
export interface Finding {
  readonly value: number;
  readonly by?: string;
}

/** A target for the results of one table; most are ratios of one run. */
export interface Target<Data> {
  readonly target: string;
  /** The minimum, or the maximum, that reaches the target. */
  readonly least?: number;
  readonly most?: number;
  readonly unit?: string;
  judge(data: Data): Finding | undefined;
}

export interface Verdict {
  readonly target: string;
  /** The result as text; empty when it was not measured. */
  readonly figure: string;
  readonly isReached: boolean | undefined;
}

/** Judges the results of a table; undefined when there are none. */
export function judge<Data>(targets: readonly Target<Data>[], data: Data | undefined): Verdict[] {
  return targets.map(({ target, least, most, unit = '', judge: of }) => {
    const wanted = `${target}: ${least === undefined ? `at most ${most}` : `at least ${least}`}${unit}`;
    const found = data === undefined ? undefined : of(data);
    if (found === undefined || !Number.isFinite(found.value))
      return { target: wanted, figure: '', isReached: undefined };
    const { value, by } = found;
    const isReached = least === undefined ? value <= (most as number) : value >= least;
    return { target: wanted, figure: `${digits(value)}${unit}${by ? ` (${by})` : ''}`, isReached };
  });
}

export function targetsSheet(verdicts: readonly Verdict[]): Sheet {
  return {
    title: 'Targets, most as ratios of this run; the best of our links counts',
    head: ['target', 'figure', 'reached'],
    rows: verdicts.map(({ target, figure: shown, isReached }) => [
      target,
      shown || 'not measured',
      isReached === undefined ? '' : isReached ? 'yes' : 'no',
    ]),
  };
}

/** Returns a figure of one row divided by that of another one. */
export function quotient(row: Row | undefined, beside: Row | undefined, of: Figure): Finding | undefined {
  const [value, to] = [figure(row, of), figure(beside, of)];
  return value === undefined || to === undefined ? undefined : { value: value / to, by: row?.contender };
}

/** Returns the throughput of a row divided by that of another one. */
export const over = (row: Row | undefined, beside: Row | undefined) => quotient(row, beside, gbps);

/** Returns the median of `beside` divided by that of `row`. */
export function quicker(row: Row | undefined, beside: Row | undefined): Finding | undefined {
  const found = quotient(row, beside, medianUs);
  return found && { ...found, value: 1 / found.value };
}

/** Returns the finding with the highest or the lowest value. */
export function extreme(findings: readonly (Finding | undefined)[], which: 'highest' | 'lowest'): Finding | undefined {
  const sign = which === 'highest' ? -1 : 1;
  return findings.filter((found) => found !== undefined).sort((a, b) => sign * (a.value - b.value))[0];
}
