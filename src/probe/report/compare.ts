/** Compares the reports of two runs. */
import type { Verdict } from '../checks/result.js';
import type { Distribution } from './distribution.js';
import type { CheckReport, ProbeReport } from './report.js';
import { valueText } from './values.js';

/** A check whose verdict is another one than before. */
export interface VerdictChange {
  /** The check's name. */
  readonly name: string;
  /** The verdict of the earlier run. */
  readonly before: Verdict;
  /** The verdict of the later run. */
  readonly after: Verdict;
  /** The text of the later verdict. */
  readonly text: string;
}

/** A measurement whose median has moved. */
export interface MedianChange {
  /** The check's name. */
  readonly name: string;
  /** The measurement's name. */
  readonly measurement: string;
  /** Unit of the medians. */
  readonly unit: Distribution['unit'];
  /** The median of the earlier run. */
  readonly before: number;
  /** The median of the later run. */
  readonly after: number;
}

/** The differences between two reports. */
export interface ProbeComparison {
  /** The earlier report's peer and date, and the later one's. */
  readonly of: readonly [Pick<ProbeReport, 'peer' | 'date'>, Pick<ProbeReport, 'peer' | 'date'>];
  /** Checks that went from pass to deviates or fails, or from deviates to fails. */
  readonly worse: readonly VerdictChange[];
  /** Checks that went the other way. */
  readonly better: readonly VerdictChange[];
  /** Checks that ran in one of the runs alone, and checks that deviate in another way. */
  readonly changed: readonly VerdictChange[];
  /** Names of the checks that the earlier report lacks. */
  readonly added: readonly string[];
  /** Names of the checks that the later report lacks. */
  readonly removed: readonly string[];
  /** Medians that moved by more than the factor. */
  readonly moved: readonly MedianChange[];
}

/** Severity of a verdict; undefined: the check did not run. */
const RANK: Readonly<Partial<Record<Verdict, number>>> = { pass: 0, deviates: 1, fails: 2 };

/**
 * Compares the report of a run with that of an earlier one.
 * @param factor the ratio of two medians from which on they count as moved, up or down
 * @throws RangeError when the factor is less than 1
 */
export function compareReports(before: ProbeReport, after: ProbeReport, factor = 2): ProbeComparison {
  if (!(factor >= 1)) throw new RangeError(`factor is ${factor}, must be at least 1`);
  const earlier = new Map(before.checks.map((check) => [check.name, check]));
  const later = new Set(after.checks.map(({ name }) => name));
  const both = after.checks.flatMap((check): [CheckReport, CheckReport][] => {
    const old = earlier.get(check.name);
    return old ? [[old, check]] : [];
  });
  const changes = (is: (old: CheckReport, check: CheckReport) => boolean): VerdictChange[] =>
    both
      .filter(([old, check]) => is(old, check))
      .map(([old, { name, verdict, text }]) => ({ name, before: old.verdict, after: verdict, text }));
  const step = (old: CheckReport, check: CheckReport) =>
    (RANK[check.verdict] ?? Number.NaN) - (RANK[old.verdict] ?? Number.NaN);
  const isOther = (old: CheckReport, check: CheckReport) =>
    old.verdict === check.verdict ? old.deviation?.what !== check.deviation?.what : Number.isNaN(step(old, check));
  return {
    of: [
      { peer: before.peer, date: before.date },
      { peer: after.peer, date: after.date },
    ],
    worse: changes((old, check) => step(old, check) > 0),
    better: changes((old, check) => step(old, check) < 0),
    changed: changes(isOther),
    added: after.checks.filter(({ name }) => !earlier.has(name)).map(({ name }) => name),
    removed: before.checks.filter(({ name }) => !later.has(name)).map(({ name }) => name),
    moved: both.flatMap(([old, check]) => medians(old, check, factor)),
  };
}

function medians(old: CheckReport, { name, measurements }: CheckReport, factor: number): MedianChange[] {
  return Object.entries(measurements ?? {}).flatMap(([measurement, { unit, median: after }]) => {
    const before = old.measurements?.[measurement]?.median;
    if (before === undefined || before === after) return [];
    const isMoved = Math.max(before, after) > factor * Math.min(before, after);
    return isMoved ? [{ name, measurement, unit, before, after }] : [];
  });
}

/** Returns whether two reports have the same verdicts, checks and medians. */
export function isUnchanged({ of: _, ...lists }: ProbeComparison): boolean {
  return Object.values(lists).every((list) => list.length === 0);
}

/** Returns a comparison as text, with a line for each difference. */
export function comparisonText(comparison: ProbeComparison): string {
  const { of, worse, better, changed, added, removed, moved } = comparison;
  const [before] = of;
  const verdicts = (word: string, changes: readonly VerdictChange[]) =>
    changes.map(
      ({ name, before, after, text }) => `${word}: ${name}: ${before} → ${after}${text === '' ? '' : `: ${text}`}`,
    );
  const lines = [
    ...verdicts('worse', worse),
    ...verdicts('better', better),
    ...verdicts('changed', changed),
    ...added.map((name) => `new: ${name}`),
    ...removed.map((name) => `gone: ${name}`),
    ...moved.map(
      ({ name, measurement, unit, before, after }) =>
        `moved: ${name}: median of ${measurement} ${valueText(before, unit)} → ${valueText(after, unit)}`,
    ),
  ];
  const head = `Compared with the report of ${before.peer} of ${before.date}:`;
  return [head, ...(lines.length > 0 ? lines : ['no difference'])].join('\n');
}
