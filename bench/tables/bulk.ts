/** Throughput of large messages. */
import { Iperf3 } from '../contenders/iperf3.js';
import { Bare } from '../contenders/native.js';
import { NodeDgram, NodeNet } from '../contenders/node.js';
import { absent, byContender, cpuPerByte, failures, figure, gbps, range, reason, select } from '../report/figures.js';
import { bytes, digits, ratio, type Sheet } from '../report/sheet.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import { type Operation, WARM_BYTES, type Work } from '../work.js';
import type { Context, Subject } from './subject.js';

export const SIZES = [65536, 1048576] as const;
export const MTUS = [1500, 9000] as const;
export const OPERATIONS: readonly Operation[] = ['WRITE', 'READ', 'SEND'];

function works({ settings: { warmMs, ms } }: Context): Work[] {
  const same = { kind: 'bulk', qps: 1, warmMs, ms, warmBytes: WARM_BYTES } as const;
  return MTUS.flatMap((mtu) =>
    SIZES.flatMap((size) =>
      (['spin', 'sleep'] as const).flatMap((waiting) =>
        OPERATIONS.map((operation) => ({ ...same, mtu, size, operation, waiting })),
      ),
    ),
  );
}

export const bulk: Subject<Row[]> = {
  name: 'bulk',
  title: 'Bulk: 64 KiB and 1 MiB, one queue pair or stream',

  async measure(context) {
    const bare = [new Bare('packet', true), new Bare('udp', true), new Bare('xdp', false)];
    const all = [...context.ours(), new NodeNet(), new NodeDgram(), new Iperf3(), ...bare];
    return measureRounds(await context.host(), all, works(context), {
      ...context.settings,
      onProgress: context.progress,
    });
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
};

function lines(name: string, rows: readonly Row[], net: (mtu: number) => number | undefined): string[][] {
  const none = reason(rows);
  if (none !== undefined) return [[name, `skipped: ${none}`]];
  const kinds = [...new Set(rows.map(({ work }) => `${work.operation} ${work.waiting}`))];
  return kinds.map((kind) => {
    const [operation, waiting] = kind.split(' ') as [Operation, Work['waiting']];
    const isOurs = rows[0]?.kind === 'ours';
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
    return [name, isOurs ? `${operation}${waiting === 'sleep' ? ', asleep' : ''}` : '', ...cells];
  });
}

/** Returns the median, with the range where the rounds differ by more than a quarter. */
function shown(row: Row | undefined): string {
  const all = range(row, gbps);
  if (all === undefined) return absent(row);
  const isWide = all.max > 1.25 * all.min;
  return `${digits(all.median)}${isWide ? ` (${digits(all.min)}–${digits(all.max)})` : ''}`;
}
