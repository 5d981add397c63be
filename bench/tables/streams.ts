/** Streams of bytes: 64 KiB writes, and the echo of 64 bytes, with both programs asleep in the event loop. */
import { NodeNet } from '../contenders/node.js';
import { OurStreams, type StreamWay } from '../contenders/streams.js';
import {
  best,
  byContender,
  cpuPerByte,
  failures,
  figure,
  gbps,
  medianUs,
  p99Us,
  reason,
  select,
} from '../report/figures.js';
import { digits, ratio, type Sheet } from '../report/sheet.js';
import { over, quicker } from '../report/targets.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import type { Work } from '../work.js';
import { type Context, roundsOf, type Subject } from './subject.js';

const WRITE_BYTES = 65_536;
const ECHO_BYTES = 64;
const MTUS = [1500, 9000] as const;
/** V8 has compiled what a stream needs after this time. */
const WARM_MS = 2000;
const WAYS: readonly StreamWay[] = ['rsocket', 'rsocketOnread', 'stream'];

function works({ settings: { ms } }: Context): Work[] {
  const same = { operation: 'SEND', qps: 1, waiting: 'sleep', warmMs: WARM_MS, ms } as const;
  return [
    ...MTUS.map((mtu): Work => ({ ...same, kind: 'bulk', size: WRITE_BYTES, mtu })),
    { ...same, kind: 'pingpong', size: ECHO_BYTES, mtu: 1500 },
  ];
}

export const streams: Subject<Row[]> = {
  name: 'streams',
  title: 'Streams: writes of 64 KiB, echo of 64 bytes',
  comparesBuilds: true,

  async measure(context) {
    const ours = context.oursOfBuilds().flatMap(({ options }) => WAYS.map((way) => new OurStreams(way, options)));
    const nodes = [new NodeNet(), new NodeNet(true)];
    return measureRounds(await context.host(), [...ours, ...nodes], works(context), roundsOf(context));
  },

  sheets(rows) {
    const net = select(rows, { contender: 'Node net' });
    const sheet: Sheet = {
      title: 'Gbit/s of payload and µs of a round trip (medians of the rounds), beside Node net',
      head: ['', ...MTUS.flatMap((mtu) => [`MTU ${mtu}`, '× net']), 'CPU ns/KiB', 'echo, median', 'p99', 'Node net is'],
      rows: [...byContender(rows)].map(([name, own]) => line(name, own, net)),
      notes: [
        'rsocket: wasm-roce/net. stream: connection.stream(). CPU: user and system time of both ends, MTU 9000.',
        'onread: the reader is a client that receives into its own memory; others receive a new Buffer for each event.',
        ...failures(rows),
      ],
    };
    return [sheet];
  },

  targets: [
    {
      target: 'rsockets, writes of 64 KiB, MTU 9000, relative to connection.stream() over the same link',
      least: 0.9,
      judge: (rows) => {
        const row = best(rowsOf(rows, 'rsocket', 9000, WRITE_BYTES), gbps);
        const contender = row?.contender.replace('rsocket', 'stream');
        return over(row, select(rows, { contender, mtu: 9000, size: WRITE_BYTES })[0]);
      },
    },
    {
      target: 'rsockets, writes of 64 KiB, MTU 9000, relative to Node net',
      least: 1.5,
      judge: (rows) =>
        over(
          best(rowsOf(rows, 'rsocket', 9000, WRITE_BYTES), gbps),
          select(rows, { contender: 'Node net', mtu: 9000, size: WRITE_BYTES })[0],
        ),
    },
    {
      target: 'rsockets, writes of 64 KiB, MTU 9000, both readers by onread, relative to Node net',
      least: 1,
      judge: (rows) =>
        over(
          best(rowsOf(rows, 'rsocket, onread', 9000, WRITE_BYTES), gbps),
          select(rows, { contender: 'Node net, onread', mtu: 9000, size: WRITE_BYTES })[0],
        ),
    },
    {
      target: 'rsockets, echo of 64 B: median of Node net divided by ours',
      least: 1,
      judge: (rows) =>
        quicker(
          best(rowsOf(rows, 'rsocket', 1500, ECHO_BYTES), medianUs, 'lowest'),
          select(rows, { contender: 'Node net', size: ECHO_BYTES })[0],
        ),
    },
  ],
};

/** Returns the rows of one way, over all links and modes. */
function rowsOf(rows: readonly Row[], way: string, mtu: number, size: number): Row[] {
  return select(rows, { kind: 'ours', mtu, size }).filter(({ contender }) => contender.startsWith(`${way}: `));
}

function line(name: string, rows: readonly Row[], net: readonly Row[]): string[] {
  const none = reason(rows);
  if (none !== undefined) return [name, `skipped: ${none}`];
  const bulk = MTUS.flatMap((mtu) => {
    const [own, beside] = [rows, net].map((all) => figure(select(all, { mtu, size: WRITE_BYTES })[0], gbps));
    return [digits(own), ratio(own, beside)];
  });
  const cpu = figure(select(rows, { mtu: 9000, size: WRITE_BYTES })[0], cpuPerByte);
  const [echo, besides] = [rows, net].map((all) => select(all, { size: ECHO_BYTES })[0]);
  const median = figure(echo, medianUs);
  const times = [digits(median), digits(figure(echo, p99Us)), ratio(figure(besides, medianUs), median)];
  return [name, ...bulk, digits(cpu && cpu * 1024), ...times];
}
