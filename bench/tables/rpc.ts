/** Calls: the echo of a request, many at a time or one after the other. */
import { GrpcCalls, NetCalls, OurCalls } from '../contenders/callers.js';
import {
  best,
  byContender,
  cpuPerMessage,
  failures,
  figure,
  medianUs,
  messages,
  p99Us,
  reason,
  select,
} from '../report/figures.js';
import { bytes, digits, ratio, type Sheet } from '../report/sheet.js';
import { quotient } from '../report/targets.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import type { Work } from '../work.js';
import { type Context, roundsOf, type Subject } from './subject.js';

const SIZES = [64, 65_536] as const;
/** V8 has compiled what a call needs after this time. */
const WARM_MS = 2000;

function works({ settings: { ms } }: Context): Work[] {
  const same = { operation: 'SEND', qps: 1, waiting: 'sleep', mtu: 9000, ms } as const;
  return (['rate', 'pingpong'] as const).flatMap((kind) =>
    SIZES.map((size): Work => ({ ...same, kind, size, warmMs: kind === 'rate' ? WARM_MS : WARM_MS / 4 })),
  );
}

const of = (rows: readonly Row[], kind: Work['kind'], size: number) =>
  select(rows, { size }).filter(({ work }) => work.kind === kind);

export const rpc: Subject<Row[]> = {
  name: 'rpc',
  title: 'Calls: a request and its echo as the response',
  comparesBuilds: true,

  async measure(context) {
    const ours = context.oursOfBuilds().map(({ options }) => new OurCalls(options, 'rpc'));
    const connect = context.oursOfBuilds().map(({ options }) => new OurCalls(options, 'connectrpc'));
    const all = [...ours, ...connect, new GrpcCalls(), new NetCalls()];
    return measureRounds(await context.host(), all, works(context), roundsOf(context));
  },

  sheets(rows) {
    const sheet: Sheet = {
      title: 'Calls per second, 64 at a time, and µs of a call alone (medians of the rounds), beside grpc-js',
      head: [
        '',
        ...SIZES.flatMap((size) => [`calls/s, ${bytes(size)}`, '× grpc-js', 'CPU µs']),
        ...SIZES.flatMap((size) => [`${bytes(size)}, median`, 'p99']),
      ],
      rows: [...byContender(rows)].map(([name, own]) => line(name, own, select(rows, { contender: 'grpc-js' }))),
      notes: ['MTU 9000. CPU: of both ends for a call, 64 at a time.', ...failures(rows)],
    };
    return [sheet];
  },

  targets: SIZES.map((size) => ({
    target: `calls of ${bytes(size)}, 64 at a time, relative to grpc-js`,
    least: 3,
    judge: (rows) => {
      const all = of(rows, 'rate', size);
      return quotient(
        best(select(all, { kind: 'ours' }), messages),
        select(all, { contender: 'grpc-js' })[0],
        messages,
      );
    },
  })),
};

function line(name: string, rows: readonly Row[], grpc: readonly Row[]): string[] {
  const none = reason(rows);
  if (none !== undefined) return [name, `skipped: ${none}`];
  const rates = SIZES.flatMap((size) => {
    const [[own], [beside]] = [rows, grpc].map((all) => of(all, 'rate', size)) as [Row[], Row[]];
    const cpu = figure(own, cpuPerMessage);
    const rate = figure(own, messages);
    return [digits(rate), ratio(rate, figure(beside, messages)), digits(cpu && cpu / 1000)];
  });
  const times = SIZES.flatMap((size) => {
    const [own] = of(rows, 'pingpong', size);
    return [digits(figure(own, medianUs)), digits(figure(own, p99Us))];
  });
  return [name, ...rates, ...times];
}
