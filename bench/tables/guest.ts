/** rxe and other contenders in the same virtual machine. */
import { Iperf3 } from '../contenders/iperf3.js';
import { NodeNet } from '../contenders/node.js';
import type { Ours } from '../contenders/ours.js';
import { RXE_TO_OURS, Rxe, RxeToOurs } from '../contenders/rxe.js';
import {
  absent,
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
import type { Operation, Work } from '../work.js';
import { bestBulk } from './bulk.js';
import { LOSSES, type LossRow, lossSheet, lossTarget } from './loss.js';
import { type Context, roundsOf, type Settings, type Subject } from './subject.js';

const SIZE = 2 ** 20;
const MTUS = [1500, 9000] as const;

export interface GuestData {
  readonly rows: readonly Row[];
  readonly loss: readonly LossRow[];
  /** A description of the machine. */
  readonly machine: string;
}

/** Under emulation programs take longer to reach their full speed. */
function times({ isQuick, rounds }: Settings) {
  return { warmMs: isQuick ? 400 : 800, ms: isQuick ? 400 : 800, rounds: Math.min(rounds, 2) };
}

function works({ warmMs, ms }: { warmMs: number; ms: number }): Work[] {
  const stream = { kind: 'bulk', size: SIZE, qps: 1, warmMs, ms } as const;
  const ping = { kind: 'pingpong', operation: 'SEND', size: 64, mtu: 1500, qps: 1, warmMs, ms } as const;
  return [
    { ...stream, mtu: 1500, operation: 'WRITE', waiting: 'spin' },
    { ...stream, mtu: 1500, operation: 'SEND', waiting: 'sleep' },
    ...(['WRITE', 'READ', 'SEND'] as const).map((operation) => ({
      ...stream,
      mtu: 9000,
      operation,
      waiting: 'spin' as const,
    })),
    ...(['WRITE', 'SEND'] as const).map((operation) => ({
      ...stream,
      mtu: 9000,
      operation,
      waiting: 'sleep' as const,
    })),
    { ...ping, waiting: 'spin' },
    { ...ping, waiting: 'sleep' },
  ];
}

const LOSS_TARGET = lossTarget('1 % loss by netem in the guest');

const inline = (ours: readonly Ours[]) => ours.filter(({ options }) => options.mode === 'inline');

export const guest: Subject<GuestData> = {
  name: 'guest',
  title: 'Comparison with rxe in one virtual machine',

  async measure(context: Context) {
    const rig = await context.guest();
    const { rounds, ...window } = times(context.settings);
    const options = { ...roundsOf(context), rounds };
    const fromRxe = inline(context.ours()).map(({ link }) => new RxeToOurs(rig, link));
    const all = [...inline(context.ours()), new NodeNet(), new Iperf3(), new Rxe(rig), ...fromRxe];
    const rows = await measureRounds(rig, all, works(window), options);
    const loss: LossRow[] = [];
    const write = {
      kind: 'bulk',
      operation: 'WRITE',
      size: SIZE,
      mtu: 9000,
      qps: 1,
      waiting: 'spin',
      ...window,
    } as const;
    for (const part of LOSSES) {
      context.progress(`netem: ${part * 100} % loss`);
      await rig.setLoss(part);
      const some = [...inline(context.ours()), new Rxe(rig)];
      loss.push(...(await measureRounds(rig, some, [write], options)).map((row) => ({ ...row, loss: part })));
    }
    await rig.setLoss(0);
    return { rows, loss, machine: rig.description };
  },

  sheets({ rows, loss, machine }) {
    const [streams, pings] = [select(rows, { size: SIZE }), select(rows, { size: 64 })];
    const rxe = (mtu: number) =>
      figure(best(select(streams, { contender: 'rxe', mtu, operation: 'WRITE' }), gbps), gbps);
    const rxePing = figure(best(select(pings, { contender: 'rxe' }), medianUs, 'lowest'), medianUs);
    const bulk: Sheet = {
      title: `Gbit/s of payload, 1 MiB, and as a multiple of rxe's best WRITE; in ${machine}`,
      head: ['', 'operation', ...MTUS.flatMap((mtu) => [`MTU ${mtu}`, '× rxe', 'CPU ns/KiB'])],
      rows: [...byContender(streams)].flatMap(([name, own]) => streamLines(name, own, rxe)),
      notes: [
        'rxe is measured by perftest. Its CPU time is that of the whole machine, because rxe works in the kernel. "rxe to ours": perftest over rxe sends to `wasm-roce write-bw`, one frame for each packet and without a UDP checksum.',
        ...failures(rows),
      ],
    };
    const latency: Sheet = {
      title: 'µs of a round trip of 64 bytes by SEND, MTU 1500',
      head: ['', 'both ends', 'median', 'p99', 'rxe is'],
      rows: [...byContender(pings)].flatMap(([name, own]) => {
        const none = reason(own);
        if (none !== undefined) return [[name, `skipped: ${none}`]];
        return own.map((row) => [
          ...[name, row.work.waiting === 'spin' ? 'spinning' : 'asleep', digits(figure(row, medianUs))],
          ...[digits(figure(row, p99Us)), ratio(rxePing, figure(row, medianUs))],
        ]);
      }),
    };
    const note =
      'netem drops frames at both ends of the veth pair. It drops whole super-packets of links that use segmentation offload.';
    return [bulk, latency, lossSheet(loss, note)];
  },

  targets: [
    {
      target: 'bulk WRITE 1 MiB, relative to rxe in the same guest',
      least: 5,
      judge: ({ rows }) =>
        over(
          bestBulk(rows, 9000, 'WRITE'),
          best(select(rows, { contender: 'rxe', mtu: 9000, operation: 'WRITE', size: SIZE }), gbps),
        ),
    },
    {
      target: 'bulk WRITE 1 MiB from rxe to ours, relative to rxe to rxe',
      least: 0.9,
      judge: ({ rows }) => {
        const writes = select(rows, { mtu: 9000, operation: 'WRITE', size: SIZE, waiting: 'spin' });
        const toOurs = writes.filter(({ contender }) => contender.startsWith(RXE_TO_OURS));
        return over(best(toOurs, gbps), select(writes, { contender: 'rxe' })[0]);
      },
    },
    {
      target: 'SEND ping-pong of 64 B in the same guest: median of rxe divided by ours',
      least: 1,
      judge: ({ rows }) =>
        quicker(
          best(select(rows, { kind: 'ours', operation: 'SEND', size: 64 }), medianUs, 'lowest'),
          best(select(rows, { contender: 'rxe', size: 64 }), medianUs, 'lowest'),
        ),
    },
    { ...LOSS_TARGET, judge: ({ loss }) => LOSS_TARGET.judge(loss) },
  ],
};

function streamLines(name: string, rows: readonly Row[], rxe: (mtu: number) => number | undefined): string[][] {
  const none = reason(rows);
  if (none !== undefined) return [[name, `skipped: ${none}`]];
  const kinds = [...new Set(rows.map(({ work }) => `${work.operation} ${work.waiting}`))];
  return kinds.map((kind) => {
    const [operation, waiting] = kind.split(' ') as [Operation, Work['waiting']];
    const cells = MTUS.flatMap((mtu) => {
      const row = select(rows, { mtu, operation, waiting })[0];
      const [value, cpu] = [figure(row, gbps), figure(row, cpuPerByte)];
      return [value === undefined ? absent(row) : digits(value), ratio(value, rxe(mtu)), digits(cpu && cpu * 1024)];
    });
    const isRdma = rows[0]?.kind === 'ours' || name.startsWith('rxe');
    return [name, isRdma ? `${operation}${waiting === 'sleep' ? ', asleep' : ''}` : '', ...cells];
  });
}
