/** What is to be reached, each a ratio of one run, computed from the results. */
import type { Row } from '../rig/rounds.js';
import { type CardData, limitOf, overLimit } from '../tables/card.js';
import type { GuestData } from '../tables/guest.js';
import { goodput, type LossRow } from '../tables/loss.js';
import { bareFrames } from '../tables/rate.js';
import type { ScaleData } from '../tables/scale.js';
import type { Operation } from '../work.js';
import { best, figure, frames, gbps, medianUs, p99Us, select } from './figures.js';
import { digits, type Sheet } from './sheet.js';

/** Results of one run, by table; any may be missing. */
export interface Results {
  readonly bulk?: Row[];
  readonly latency?: Row[];
  readonly rate?: Row[];
  readonly card?: CardData;
  readonly scale?: ScaleData;
  readonly loss?: LossRow[];
  readonly guest?: GuestData;
}

export interface Verdict {
  readonly target: string;
  /** What came out, in words; empty when it was not measured. */
  readonly figure: string;
  readonly isReached: boolean | undefined;
}

type Judge = (results: Results) => { readonly value: number; readonly by?: string } | undefined;

interface Target {
  readonly target: string;
  /** The least that is wanted, or the most. */
  readonly least?: number;
  readonly most?: number;
  readonly judge: Judge;
  readonly unit?: string;
}

const ours = (rows: readonly Row[]) => select(rows, { kind: 'ours' });
const MIB = 2 ** 20;

/** The best of ours, of the higher of both ways of waiting. */
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

/** @param of how many of `row`'s medians fit into `beside`'s */
function quicker(row: Row | undefined, beside: Row | undefined): ReturnType<Judge> {
  const [value, to] = [figure(row, medianUs), figure(beside, medianUs)];
  return value === undefined || to === undefined ? undefined : { value: to / value, by: row?.contender };
}

const TARGETS: readonly Target[] = [
  { target: 'bulk WRITE 1 MiB, MTU 9000, to Node net', least: 1.2, judge: overNet(9000) },
  { target: 'bulk WRITE 1 MiB, MTU 1500, to Node net', least: 1, judge: overNet(1500) },
  { target: 'bulk READ to WRITE, 1 MiB, MTU 9000', least: 0.85, judge: ofWrite('READ') },
  { target: 'bulk SEND to WRITE, 1 MiB, MTU 9000', least: 0.85, judge: ofWrite('SEND') },
  {
    target: 'bulk WRITE 1 MiB to rxe in the same guest',
    least: 5,
    judge: ({ guest }) =>
      over(
        bestBulk(guest?.rows, 9000, 'WRITE'),
        best(select(guest?.rows ?? [], { contender: 'rxe', mtu: 9000, operation: 'WRITE', size: MIB }), gbps),
      ),
  },
  {
    target: '64 B SEND ping-pong, both spinning: median of Node net to ours',
    least: 10,
    judge: ({ latency = [] }) => quicker(bestPing(latency, 'spin'), select(latency, { contender: 'Node net' })[0]),
  },
  {
    target: 'the same: our p99 to our median',
    most: 2,
    judge: ({ latency = [] }) => {
      const row = bestPing(latency, 'spin');
      const [p99, median] = [figure(row, p99Us), figure(row, medianUs)];
      return p99 === undefined || median === undefined ? undefined : { value: p99 / median, by: row?.contender };
    },
  },
  {
    target: 'both asleep in the event loop: median of Node net to ours',
    least: 1,
    judge: ({ latency = [] }) => quicker(bestPing(latency, 'sleep'), select(latency, { contender: 'Node net' })[0]),
  },
  {
    target: '64 B SEND ping-pong in the same guest: median of rxe to ours',
    least: 1,
    judge: ({ guest }) =>
      quicker(
        best(select(ours(guest?.rows ?? []), { operation: 'SEND', size: 64 }), medianUs, 'lowest'),
        best(select(guest?.rows ?? [], { contender: 'rxe', size: 64 }), medianUs, 'lowest'),
      ),
  },
  {
    target: 'message rate: frames/s to those of the bare link',
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
    target: 'the card alone: million messages a second and core',
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
    target: 'the card alone, packets of 4 KiB: time to that of copy + CRC',
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
    target: '10,000 queue pairs: time of a message to that with ten',
    most: 1.2,
    judge: ({ scale }) => {
      const [few, many] = [scale?.rows[0]?.messageNs, scale?.rows.find(({ qps }) => qps === 10_000)?.messageNs];
      return few === undefined || many === undefined ? undefined : { value: many / few };
    },
  },
  {
    target: "card's memory of an idle queue pair besides its rings",
    most: 4096,
    unit: ' bytes',
    judge: ({ scale }) => scale && { value: scale.idle.bytesWithoutRings },
  },
  { target: '1 % loss: goodput to that without loss, our own faults', least: 0.5, judge: ({ loss }) => lost(loss) },
  {
    target: '1 % loss: goodput to that without loss, netem in the guest',
    least: 0.5,
    judge: (results) => lost(results.guest?.loss),
  },
];

/** The best link at its worse MTU. */
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
    title: 'What is to be reached, as ratios of this run; the best of our links counts',
    head: ['target', 'figure', 'reached'],
    rows: verdicts.map(({ target, figure: shown, isReached }) => [
      target,
      shown || 'not measured',
      isReached === undefined ? '' : isReached ? 'yes' : 'no',
    ]),
  };
}
