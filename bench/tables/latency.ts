/** Round trips of a 64-byte message. */
import { Bare, PlainTcp } from '../contenders/native.js';
import { NodeDgram, NodeNet } from '../contenders/node.js';
import {
  absent,
  best,
  byContender,
  cpuPerMessage,
  failures,
  figure,
  isOfOurs,
  medianUs,
  p99Us,
  reason,
  select,
} from '../report/figures.js';
import { digits, ratio, type Sheet } from '../report/sheet.js';
import { type Finding, quicker, quotient, type Target } from '../report/targets.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import type { Operation, Work } from '../work.js';
import { type Context, roundsOf, type Subject } from './subject.js';

/** Milliseconds until V8 has compiled what a round trip runs. Before that, one of a hundred takes some milliseconds. */
const WARM_MS = 2000;

function works({ settings: { ms } }: Context): Work[] {
  const same = { kind: 'pingpong', size: 64, mtu: 1500, qps: 1, warmMs: WARM_MS, ms } as const;
  return [
    { ...same, operation: 'SEND', waiting: 'spin' },
    { ...same, operation: 'WRITE', waiting: 'spin' },
    { ...same, operation: 'READ', waiting: 'spin' },
    { ...same, operation: 'SEND', waiting: 'sleep' },
    { ...same, operation: 'READ', waiting: 'sleep' },
  ];
}

export const latency: Subject<Row[]> = {
  name: 'latency',
  title: 'Latency: round trips of 64 bytes',
  comparesBuilds: true,

  async measure(context) {
    const bare = ['packet', 'udp', 'xdp'].map((link) => new Bare(link, false));
    const all = [...context.oursOfBuilds(), new NodeNet(), new NodeDgram(), new PlainTcp(), ...bare];
    return measureRounds(await context.host(), all, works(context), roundsOf(context));
  },

  sheets(rows) {
    const net = figure(select(rows, { contender: 'Node net' })[0], medianUs);
    const sheet: Sheet = {
      title: 'µs of a round trip (medians of the rounds), and the multiple that Node net takes',
      head: ['', 'operation', 'both ends', 'median', 'p99', 'p99.9', 'Node net is', 'CPU µs'],
      rows: [...byContender(rows)].flatMap(([name, own]) => lines(name, own, net)),
      notes: [
        'WRITE: the other end polls its memory and writes back. READ: only one end runs a program. CPU: user and system time of both ends.',
        ...failures(rows),
      ],
    };
    return [sheet];
  },

  targets: [
    {
      target: 'SEND ping-pong of 64 B, both ends spinning: median of Node net divided by ours',
      least: 10,
      judge: (rows) => quicker(bestPing(rows, 'SEND', 'spin'), nodeNet(rows)),
    },
    {
      target: 'SEND ping-pong of 64 B, both ends spinning: our p99 divided by our median',
      most: 2,
      judge: (rows) => spread(bestPing(rows, 'SEND', 'spin')),
    },
    ...(['SEND', 'WRITE'] as const).map(
      (operation): Target<Row[]> => ({
        target: `${operation} ping-pong of 64 B, both ends spinning: median relative to C over TCP, spinning`,
        most: 1,
        judge: (rows) => quotient(bestPing(rows, operation, 'spin'), spinning(rows, 'C, TCP socket'), medianUs),
      }),
    ),
    {
      target: 'READ of 64 B, spinning: median relative to the ping-pong of bare AF_XDP',
      most: 1.5,
      judge: (rows) => quotient(bestPing(rows, 'READ', 'spin'), spinning(rows, 'C, bare xdp'), medianUs),
    },
    {
      target: 'SEND ping-pong of 64 B, both ends in the event loop: median of Node net divided by ours',
      least: 1,
      judge: (rows) => quicker(bestPing(rows, 'SEND', 'sleep'), nodeNet(rows)),
    },
    {
      target: 'SEND ping-pong of 64 B, both ends in the event loop: p99 relative to Node net',
      most: 1,
      judge: (rows) => quotient(bestPing(rows, 'SEND', 'sleep'), nodeNet(rows), p99Us),
    },
    {
      target: 'SEND ping-pong of 64 B, both ends in the event loop: our p99 divided by our median',
      most: 5,
      judge: (rows) => spread(bestPing(rows, 'SEND', 'sleep')),
    },
  ],
};

function bestPing(rows: readonly Row[], operation: Operation, waiting: Work['waiting']): Row | undefined {
  return best(select(rows, { kind: 'ours', operation, waiting }), medianUs, 'lowest');
}

const nodeNet = (rows: readonly Row[]) => select(rows, { contender: 'Node net' })[0];
const spinning = (rows: readonly Row[], contender: string) => select(rows, { contender, waiting: 'spin' })[0];

function spread(row: Row | undefined): Finding | undefined {
  const [p99, median] = [figure(row, p99Us), figure(row, medianUs)];
  return p99 === undefined || median === undefined ? undefined : { value: p99 / median, by: row?.contender };
}

function lines(name: string, rows: readonly Row[], net: number | undefined): string[][] {
  const none = reason(rows);
  if (none !== undefined) return [[name, `skipped: ${none}`]];
  return rows.map((row) => {
    const { operation, waiting } = row.work;
    const how =
      waiting === 'spin'
        ? 'spinning'
        : isOfOurs(row) || name.startsWith('Node')
          ? 'in the event loop'
          : 'in the kernel';
    const [median, cpu] = [figure(row, medianUs), figure(row, cpuPerMessage)];
    const times = [median, figure(row, p99Us), figure(row, ({ latency }) => latency?.p999)].map(digits);
    const head = [name, isOfOurs(row) ? operation : '', how];
    return median === undefined
      ? [...head, absent(row), '', '', '', '']
      : [...head, ...times, ratio(net, median), digits(cpu && cpu / 1000)];
  });
}
