/** Figures of measured rows. */
import type { Row } from '../rig/rounds.js';
import { median, type Spread, spread } from '../rig/stats.js';
import type { Sample, Work } from '../work.js';

export type Figure = (sample: Sample) => number | undefined;

export const gbps: Figure = (sample) => sample.gbps;
export const messages: Figure = (sample) => sample.messagesPerSecond;
export const frames: Figure = (sample) => sample.framesPerSecond;
export const medianUs: Figure = (sample) => sample.latency?.median;
export const p99Us: Figure = (sample) => sample.latency?.p99;
export const cpuPerByte: Figure = (sample) => sample.cpuPerByte;
export const cpuPerMessage: Figure = (sample) => sample.cpuPerMessage;

/** Returns the median over the rounds; undefined for a row that was skipped. */
export function figure(row: Row | undefined, of: Figure): number | undefined {
  const values = valuesOf(row, of);
  return values.length > 0 ? median(values) : undefined;
}

export function range(row: Row | undefined, of: Figure): Spread | undefined {
  const values = valuesOf(row, of);
  return values.length > 0 ? spread(values) : undefined;
}

function valuesOf(row: Row | undefined, of: Figure): number[] {
  return (row?.samples ?? []).map(of).filter((value) => value !== undefined);
}

export type Wanted = Partial<Pick<Row, 'contender' | 'kind' | 'link'>> & Partial<Omit<Work, 'kind'>>;

export function select(rows: readonly Row[], { contender, kind, link, ...work }: Wanted): Row[] {
  // `kind` is the contender's; a table has one kind of work only, so nobody selects by that.
  const row = { contender, kind, link };
  const isLike = (value: object, wanted: object) =>
    Object.entries(wanted).every(([name, is]) => is === undefined || (value as Record<string, unknown>)[name] === is);
  return rows.filter((each) => isLike(each, row) && isLike(each.work, work));
}

/** Returns the row with the highest or the lowest figure. */
export function best(rows: readonly Row[], of: Figure, which: 'highest' | 'lowest' = 'highest'): Row | undefined {
  const sign = which === 'highest' ? 1 : -1;
  const value = (row: Row) => sign * (figure(row, of) ?? -sign * Number.POSITIVE_INFINITY);
  const there = rows.filter((row) => row.samples.length > 0);
  return there.reduce<Row | undefined>(
    (top, row) => (top === undefined || value(row) > value(top) ? row : top),
    undefined,
  );
}

/** Returns why a contender has no figures at all; undefined when it has some. */
export function reason(rows: readonly Row[]): string | undefined {
  return rows.some(({ samples }) => samples.length > 0) ? undefined : rows.find(({ skipped }) => skipped)?.skipped;
}

/** Whether a row is of a build of this project, which has operations. */
export function isOfOurs(row: Pick<Row, 'kind'> | undefined): boolean {
  return row?.kind === 'ours' || row?.kind === 'before';
}

/** Returns the contenders in their order, each with its rows. */
export function byContender(rows: readonly Row[]): Map<string, Row[]> {
  const all = new Map<string, Row[]>();
  for (const row of rows) all.set(row.contender, [...(all.get(row.contender) ?? []), row]);
  return all;
}

/** Returns the text of a cell without a figure: that the measurement failed, or nothing if there was none. */
export function absent(row: Row | undefined): string {
  return row?.skipped === undefined ? '' : 'failed';
}

/** Returns sentences about failed rows of contenders that have other results. */
export function failures(rows: readonly Row[]): string[] {
  return [...byContender(rows)].flatMap(([name, own]) => {
    if (reason(own) !== undefined) return [];
    const failed = own.filter(({ samples, skipped }) => samples.length === 0 && skipped !== undefined);
    return failed.map(({ work, skipped }) => {
      const { operation, size, mtu, waiting } = work;
      return `${name}, ${operation} of ${size} bytes, MTU ${mtu}, ${waiting === 'spin' ? 'spinning' : 'asleep'}: ${skipped}`;
    });
  });
}
