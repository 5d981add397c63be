/** Performance targets, computed from the results; most are ratios of one run. */
import type { Row } from '../rig/rounds.js';
import { type CardData, limitOf, overLimit } from '../tables/card.js';
import type { GuestData } from '../tables/guest.js';
import { goodput, type LossRow } from '../tables/loss.js';
import { bareFrames } from '../tables/rate.js';
import type { ScaleData } from '../tables/scale.js';
import { ECHO_BYTES, WRITE_BYTES } from '../tables/streams.js';
import type { Operation } from '../work.js';
import { best, type Figure, figure, frames, gbps, medianUs, p99Us, select } from './figures.js';
import { digits, type Sheet } from './sheet.js';

/** Results of one run by table. Any of them may be missing. */
export interface Results {
  readonly bulk?: Row[];
  readonly latency?: Row[];
  readonly streams?: Row[];
  readonly rate?: Row[];
  readonly card?: CardData;
  readonly scale?: ScaleData;
  readonly loss?: LossRow[];
  readonly guest?: GuestData;
}

export interface Verdict {
  readonly target: string;
  /** The result as text; empty when it was not measured. */
  readonly figure: string;
  readonly isReached: boolean | undefined;
}

type Judge = (results: Results) => { readonly value: number; readonly by?: string } | undefined;

interface Target {
  readonly target: string;
  /** The minimum, or the maximum, that reaches the target. */
  readonly least?: number;
  readonly most?: number;
  readonly judge: Judge;
  readonly unit?: string;
}

const ours = (rows: readonly Row[]) => select(rows, { kind: 'ours' });
const MIB = 2 ** 20;

/** Returns the fastest of our links; both ways of waiting count. */
function bestBulk(rows: readonly Row[] | undefined, mtu: number, operation: Operation): Row | undefined {
  return best(select(ours(rows ?? []), { mtu, operation, size: MIB }), gbps);
}

function over(row: Row | undefined, beside: Row | undefined): ReturnType<Judge> {
  const [value, to] = [figure(row, gbps), figure(beside, gbps)];
  return value === undefined || to === undefined ? undefined : { value: value / to, by: row?.contender };
}

const overNet =
  (mtu: number): Judge =>
  ({ bulk = [] }) =>
    over(bestBulk(bulk, mtu, 'WRITE'), select(bulk, { contender: 'Node net', mtu, size: MIB })[0]);

const ofWrite =
  (operation: Operation): Judge =>
  ({ bulk = [] }) =>
    over(bestBulk(bulk, 9000, operation), bestBulk(bulk, 9000, 'WRITE'));

function bestPing(rows: readonly Row[], waiting: 'spin' | 'sleep'): Row | undefined {
  return best(select(ours(rows), { operation: 'SEND', waiting }), medianUs, 'lowest');
}

/** Returns the median of `beside` divided by that of `row`. */
function quicker(row: Row | undefined, beside: Row | undefined): ReturnType<Judge> {
  const [value, to] = [figure(row, medianUs), figure(beside, medianUs)];
  return value === undefined || to === undefined ? undefined : { value: to / value, by: row?.contender };
}

/** Returns the rsockets over the link and mode that is best by a figure. */
const bestRsocket = (rows: readonly Row[], mtu: number, size: number, of: Figure, which?: 'lowest') =>
  best(
    select(ours(rows), { mtu, size }).filter(({ contender }) => contender.startsWith('rsocket')),
    of,
    which,
  );

const TARGETS: readonly Target[] = [
  { target: 'bulk WRITE 1 MiB, MTU 9000, relative to Node net', least: 1.2, judge: overNet(9000) },
  { target: 'bulk WRITE 1 MiB, MTU 1500, relative to Node net', least: 1, judge: overNet(1500) },
  { target: 'bulk READ 1 MiB, MTU 9000, relative to WRITE', least: 0.85, judge: ofWrite('READ') },
  { target: 'bulk SEND 1 MiB, MTU 9000, relative to WRITE', least: 0.85, judge: ofWrite('SEND') },
  {
    target: 'bulk WRITE 1 MiB, relative to rxe in the same guest',
    least: 5,
    judge: ({ guest }) =>
      over(
        bestBulk(guest?.rows, 9000, 'WRITE'),
        best(select(guest?.rows ?? [], { contender: 'rxe', mtu: 9000, operation: 'WRITE', size: MIB }), gbps),
      ),
  },
  {
    target: 'SEND ping-pong of 64 B, both ends spinning: median of Node net divided by ours',
    least: 10,
    judge: ({ latency = [] }) => quicker(bestPing(latency, 'spin'), select(latency, { contender: 'Node net' })[0]),
  },
  {
    target: 'SEND ping-pong of 64 B, both ends spinning: our p99 divided by our median',
    most: 2,
    judge: ({ latency = [] }) => {
      const row = bestPing(latency, 'spin');
      const [p99, median] = [figure(row, p99Us), figure(row, medianUs)];
      return p99 === undefined || median === undefined ? undefined : { value: p99 / median, by: row?.contender };
    },
  },
  {
    target: 'SEND ping-pong of 64 B, both ends in the event loop: median of Node net divided by ours',
    least: 1,
    judge: ({ latency = [] }) => quicker(bestPing(latency, 'sleep'), select(latency, { contender: 'Node net' })[0]),
  },
  {
    target: 'SEND ping-pong of 64 B in the same guest: median of rxe divided by ours',
    least: 1,
    judge: ({ guest }) =>
      quicker(
        best(select(ours(guest?.rows ?? []), { operation: 'SEND', size: 64 }), medianUs, 'lowest'),
        best(select(guest?.rows ?? [], { contender: 'rxe', size: 64 }), medianUs, 'lowest'),
      ),
  },
  {
    target: 'rsockets, writes of 64 KiB, MTU 9000, relative to connection.stream() over the same link',
    least: 0.9,
    judge: ({ streams = [] }) => {
      const row = bestRsocket(streams, 9000, WRITE_BYTES, gbps);
      const contender = row?.contender.replace('rsocket', 'stream');
      return over(row, select(streams, { contender, mtu: 9000, size: WRITE_BYTES })[0]);
    },
  },
  {
    target: 'rsockets, writes of 64 KiB, MTU 9000, relative to Node net',
    least: 1.5,
    judge: ({ streams = [] }) =>
      over(
        bestRsocket(streams, 9000, WRITE_BYTES, gbps),
        select(streams, { contender: 'Node net', mtu: 9000, size: WRITE_BYTES })[0],
      ),
  },
  {
    target: 'rsockets, echo of 64 B: median of Node net divided by ours',
    least: 1,
    judge: ({ streams = [] }) =>
      quicker(
        bestRsocket(streams, 1500, ECHO_BYTES, medianUs, 'lowest'),
        select(streams, { contender: 'Node net', size: ECHO_BYTES })[0],
      ),
  },
  {
    target: 'message rate: frames/s relative to the bare link',
    least: 0.7,
    judge: ({ rate = [] }) => {
      const each = select(ours(rate), { size: 64 }).flatMap((row) => {
        const [value, bare] = [figure(row, frames), bareFrames(rate, row.link)];
        return value === undefined || bare === undefined
          ? []
          : [{ value: value / bare, by: `${row.contender}, ${row.work.qps} QPs, ${row.work.operation}` }];
      });
      return each.sort((a, b) => b.value - a.value)[0];
    },
  },
  {
    target: 'the card alone: million messages per second and core',
    least: 3,
    judge: ({ card }) => {
      const each = (card?.rows ?? []).map((row) => ({
        value: 1000 / Math.max(row.requesterNs, row.responderNs),
        by: `${row.operation}, ${row.size} B`,
      }));
      return each.sort((a, b) => b.value - a.value)[0];
    },
  },
  {
    target: 'the card alone, packets of 4 KiB: time relative to copy + CRC',
    most: 1.5,
    judge: ({ card }) => {
      const row = card?.rows.find(
        ({ operation, size, pathMtu }) => operation === 'WRITE' && size === MIB && pathMtu === 4096,
      );
      const value = card && row && overLimit(row, limitOf(card.limits, row)?.ns.copyAndSum);
      return value === undefined ? undefined : { value };
    },
  },
  {
    target: '10,000 queue pairs: time of a message relative to ten queue pairs',
    most: 1.2,
    judge: ({ scale }) => {
      const [few, many] = [scale?.rows[0]?.messageNs, scale?.rows.find(({ qps }) => qps === 10_000)?.messageNs];
      return few === undefined || many === undefined ? undefined : { value: many / few };
    },
  },
  {
    target: 'card memory of an idle queue pair without its rings',
    most: 4096,
    unit: ' bytes',
    judge: ({ scale }) => scale && { value: scale.idle.bytesWithoutRings },
  },
  {
    target: '1 % loss by our fault injection: goodput relative to no loss',
    least: 0.5,
    judge: ({ loss }) => lost(loss),
  },
  {
    target: '1 % loss by netem in the guest: goodput relative to no loss',
    least: 0.5,
    judge: (results) => lost(results.guest?.loss),
  },
];

/** Returns the goodput ratio of the best link at its worse MTU. */
function lost(rows: readonly LossRow[] | undefined): ReturnType<Judge> {
  const names = [...new Set(ours(rows ?? []).map(({ contender }) => contender))];
  const each = names.flatMap((name) => {
    const own = select(rows ?? [], { contender: name }) as LossRow[];
    const parts = [...new Set(own.map(({ work }) => work.mtu))].flatMap((mtu) => {
      const [whole, rest] = [goodput(own, mtu, 0), goodput(own, mtu, 0.01)];
      return whole === undefined || rest === undefined ? [] : [rest / whole];
    });
    return parts.length === 0 ? [] : [{ value: Math.min(...parts), by: name }];
  });
  return each.sort((a, b) => b.value - a.value)[0];
}

export function judge(results: Results): Verdict[] {
  return TARGETS.map(({ target, least, most, unit = '', judge: of }) => {
    const wanted = `${target}: ${least === undefined ? `at most ${most}` : `at least ${least}`}${unit}`;
    const found = of(results);
    if (found === undefined || !Number.isFinite(found.value))
      return { target: wanted, figure: '', isReached: undefined };
    const { value, by } = found;
    const isReached = least === undefined ? value <= (most as number) : value >= least;
    return { target: wanted, figure: `${digits(value)}${unit}${by ? ` (${by})` : ''}`, isReached };
  });
}

export function targetsSheet(verdicts: readonly Verdict[]): Sheet {
  return {
    title: 'Targets, as ratios of this run; the best of our links counts',
    head: ['target', 'figure', 'reached'],
    rows: verdicts.map(({ target, figure: shown, isReached }) => [
      target,
      shown || 'not measured',
      isReached === undefined ? '' : isReached ? 'yes' : 'no',
    ]),
  };
}
