/** Round trips of a 64-byte message. */
import { Bare, PlainTcp } from '../contenders/native.js';
import { NodeDgram, NodeNet } from '../contenders/node.js';
import {
  absent,
  byContender,
  cpuPerMessage,
  failures,
  figure,
  medianUs,
  p99Us,
  reason,
  select,
} from '../report/figures.js';
import { digits, ratio, type Sheet } from '../report/sheet.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import type { Work } from '../work.js';
import type { Context, Subject } from './subject.js';

function works({ settings: { warmMs, ms } }: Context): Work[] {
  const same = { kind: 'pingpong', size: 64, mtu: 1500, qps: 1, warmMs, ms } as const;
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

  async measure(context) {
    const bare = ['packet', 'udp', 'xdp'].map((link) => new Bare(link, false));
    const all = [...context.ours(), new NodeNet(), new NodeDgram(), new PlainTcp(), ...bare];
    return measureRounds(await context.host(), all, works(context), {
      ...context.settings,
      onProgress: context.progress,
    });
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
};

function lines(name: string, rows: readonly Row[], net: number | undefined): string[][] {
  const none = reason(rows);
  if (none !== undefined) return [[name, `skipped: ${none}`]];
  return rows.map((row) => {
    const { operation, waiting } = row.work;
    const how =
      waiting === 'spin'
        ? 'spinning'
        : row.kind === 'ours' || name.startsWith('Node')
          ? 'in the event loop'
          : 'in the kernel';
    const [median, cpu] = [figure(row, medianUs), figure(row, cpuPerMessage)];
    const times = [median, figure(row, p99Us), figure(row, ({ latency }) => latency?.p999)].map(digits);
    const head = [name, row.kind === 'ours' ? operation : '', how];
    return median === undefined
      ? [...head, absent(row), '', '', '', '']
      : [...head, ...times, ratio(net, median), digits(cpu && cpu / 1000)];
  });
}
