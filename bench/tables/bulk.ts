/** Throughput of large messages. */
import { Iperf3 } from '../contenders/iperf3.js';
import { Bare, PlainTcp } from '../contenders/native.js';
import { NodeDgram, NodeNet } from '../contenders/node.js';
import { UcxPerftest } from '../contenders/ucx.js';
import {
  absent,
  best,
  byContender,
  cpuPerByte,
  failures,
  figure,
  gbps,
  isOfOurs,
  range,
  reason,
  select,
} from '../report/figures.js';
import { bytes, digits, ratio, type Sheet } from '../report/sheet.js';
import { extreme, type Finding, over, type Target } from '../report/targets.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import { type Operation, WARM_BYTES, type Work } from '../work.js';
import { type Context, roundsOf, type Subject } from './subject.js';

export const SIZES = [65536, 1048576] as const;
export const MTUS = [1500, 9000] as const;
export const OPERATIONS: readonly Operation[] = ['WRITE', 'READ', 'SEND'];

/** Returns the transfers of all operations and sizes. */
export function bulkWorks({ settings: { warmMs, ms } }: Context, waitings: readonly Work['waiting'][]): Work[] {
  const same = { kind: 'bulk', qps: 1, warmMs, ms, warmBytes: WARM_BYTES } as const;
  return MTUS.flatMap((mtu) =>
    SIZES.flatMap((size) =>
      waitings.flatMap((waiting) => OPERATIONS.map((operation) => ({ ...same, mtu, size, operation, waiting }))),
    ),
  );
}

export const bulk: Subject<Row[]> = {
  name: 'bulk',
  title: 'Bulk: 64 KiB and 1 MiB, one queue pair or stream',
  comparesBuilds: true,

  async measure(context) {
    const bare = [new Bare('packet', true), new Bare('udp', true), new Bare('xdp', false)];
    const tcp = [new Iperf3(), new Iperf3(true), new PlainTcp(), new PlainTcp(true)];
    const all = [...context.oursOfBuilds(), new NodeNet(), new NodeDgram(), ...tcp, new UcxPerftest(), ...bare];
    return measureRounds(await context.host(), all, bulkWorks(context, ['spin', 'sleep']), roundsOf(context));
  },

  sheets(rows) {
    const net = (mtu: number) => figure(select(rows, { contender: 'Node net', mtu, size: SIZES[1] })[0], gbps);
    const sheet: Sheet = {
      title: 'Gbit/s of payload (medians of the rounds), and the multiple of Node net with 1 MiB',
      head: [
        '',
        'operation',
        ...MTUS.flatMap((mtu) => [...SIZES.map((size) => `MTU ${mtu}, ${bytes(size)}`), '× net', 'CPU ns/KiB']),
      ],
      rows: [...byContender(rows)].flatMap(([name, own]) => lines(name, own, net)),
      notes: [
        'Both ends of ours poll, except in the rows "asleep", where both programs wait in the event loop. CPU: user and system time of both ends, 1 MiB. ' +
          '"bare": frames of the same size on the same link, without any protocol, by a C program.',
        ...failures(rows),
      ],
    };
    return [sheet];
  },

  targets: [
    target('WRITE 1 MiB, MTU 9000, relative to Node net', 1.2, (rows) => overNet(rows, 9000)),
    target('WRITE 1 MiB, MTU 1500, relative to Node net', 1, (rows) => overNet(rows, 1500)),
    target('READ 1 MiB, MTU 9000, relative to WRITE', 0.85, (rows) => ofWrite(rows, 'READ')),
    target('SEND 1 MiB, MTU 9000, relative to WRITE', 0.85, (rows) => ofWrite(rows, 'SEND')),
    target('WRITE 1 MiB, path MTU 4096, relative to the bare link with GSO', 0.7, (rows) => ofBare(rows, 9000)),
    target('WRITE 1 MiB, path MTU 1024, relative to the bare link with GSO', 0.5, (rows) => ofBare(rows, 1500)),
    target('of any operation and size, MTU 9000: slowest round relative to its median', 0.5, (rows) =>
      slowestRound(select(ofOurs(rows), { mtu: 9000 })),
    ),
    target('WRITE 1 MiB, path MTU 1024, xdp: slowest round relative to bare xdp', 0.85, slowestXdp),
  ],
};

function target(text: string, least: number, judge: (rows: Row[]) => Finding | undefined): Target<Row[]> {
  return { target: `bulk ${text}`, least, judge };
}

const ofOurs = (rows: readonly Row[]) => select(rows, { kind: 'ours' });

/** Returns the fastest of our links; both ways of waiting count. */
export function bestBulk(rows: readonly Row[], mtu: number, operation: Operation): Row | undefined {
  return best(select(ofOurs(rows), { mtu, operation, size: SIZES[1] }), gbps);
}

const overNet = (rows: readonly Row[], mtu: number) =>
  over(bestBulk(rows, mtu, 'WRITE'), select(rows, { contender: 'Node net', mtu, size: SIZES[1] })[0]);

const ofWrite = (rows: readonly Row[], operation: Operation) =>
  over(bestBulk(rows, 9000, operation), bestBulk(rows, 9000, 'WRITE'));

/** Each of our links beside the same link without a protocol, where frames leave in bursts. */
const ofBare = (rows: readonly Row[], mtu: number) =>
  extreme(
    select(ofOurs(rows), { mtu, operation: 'WRITE', size: SIZES[1], waiting: 'spin' }).map((row) =>
      over(row, select(rows, { contender: `C, bare ${row.link}, GSO`, mtu, size: SIZES[1] })[0]),
    ),
    'highest',
  );

function slowestRound(rows: readonly Row[]): Finding | undefined {
  return extreme(
    rows.map((row) => {
      const all = range(row, gbps);
      const { operation, size } = row.work;
      return all && { value: all.min / all.median, by: `${row.contender}, ${operation} ${bytes(size)}` };
    }),
    'lowest',
  );
}

function slowestXdp(rows: readonly Row[]): Finding | undefined {
  const wanted = { mtu: 1500, size: SIZES[1] } as const;
  const own = select(ofOurs(rows), { ...wanted, link: 'xdp', operation: 'WRITE', waiting: 'spin' });
  const bare = figure(select(rows, { ...wanted, contender: 'C, bare xdp' })[0], gbps);
  return extreme(
    own.map((row) => {
      const all = range(row, gbps);
      return all && bare ? { value: all.min / bare, by: row.contender } : undefined;
    }),
    'highest',
  );
}

function lines(name: string, rows: readonly Row[], net: (mtu: number) => number | undefined): string[][] {
  const none = reason(rows);
  if (none !== undefined) return [[name, `skipped: ${none}`]];
  const kinds = [...new Set(rows.map(({ work }) => `${work.operation} ${work.waiting}`))];
  return kinds.map((kind) => {
    const [operation, waiting] = kind.split(' ') as [Operation, Work['waiting']];
    const hasOperations = isOfOurs(rows[0]) || kinds.length > 1;
    const cells = MTUS.flatMap((mtu) => {
      const row = (size: number) => select(rows, { mtu, size, operation, waiting })[0];
      const large = row(SIZES[1]);
      const cpu = figure(large, cpuPerByte);
      return [
        ...SIZES.map((size) => shown(row(size))),
        ratio(figure(large, gbps), net(mtu)),
        digits(cpu && cpu * 1024),
      ];
    });
    return [name, hasOperations ? `${operation}${waiting === 'sleep' ? ', asleep' : ''}` : '', ...cells];
  });
}

/** Returns the median, with the range where the rounds differ by more than a quarter. */
function shown(row: Row | undefined): string {
  const all = range(row, gbps);
  if (all === undefined) return absent(row);
  const isWide = all.max > 1.25 * all.min;
  return `${digits(all.median)}${isWide ? ` (${digits(all.min)}–${digits(all.max)})` : ''}`;
}
