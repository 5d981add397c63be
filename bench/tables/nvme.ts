/** Disks over RDMA and TCP: Linux's host in the virtual machine, and targets in the same one. */
import { Nvmet, OurTarget } from '../contenders/nvme.js';
import {
  absent,
  best,
  byContender,
  failures,
  figure,
  gbps,
  medianUs,
  messages,
  p99Us,
  reason,
  select,
} from '../report/figures.js';
import { bytes, digits, type Sheet } from '../report/sheet.js';
import { quotient } from '../report/targets.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import type { Work } from '../work.js';
import { roundsOf, type Settings, type Subject } from './subject.js';

const [SMALL, LARGE] = [4096, 131_072] as const;

export interface NvmeData {
  readonly rows: readonly Row[];
  /** A description of the machine. */
  readonly machine: string;
}

function works({ isQuick }: Settings): Work[] {
  const window = { mtu: 9000, qps: 1, waiting: 'sleep', warmMs: 5000, ms: isQuick ? 1000 : 2000 } as const;
  return [
    { kind: 'pingpong', operation: 'READ', size: SMALL, ...window },
    ...(['READ', 'WRITE'] as const).map((operation) => ({ kind: 'rate' as const, operation, size: SMALL, ...window })),
    ...(['READ', 'WRITE'] as const).map((operation) => ({ kind: 'bulk' as const, operation, size: LARGE, ...window })),
  ];
}

const of = (rows: readonly Row[], kind: Work['kind'], operation: Work['operation']) =>
  select(rows, { operation }).filter(({ work }) => work.kind === kind);

export const nvme: Subject<NvmeData> = {
  name: 'nvme',
  title: 'NVMe over Fabrics: a file on tmpfs as a disk of Linux, random blocks by fio, in one virtual machine',

  async measure(context) {
    const rig = await context.guest();
    const links = [...new Set(context.ours().map(({ link }) => link))];
    const all = [...links.map((link) => new OurTarget(rig, link)), new Nvmet(rig, 'rdma'), new Nvmet(rig, 'tcp')];
    const options = { ...roundsOf(context), rounds: Math.min(context.settings.rounds, 3) };
    const rows = await measureRounds(rig, all, works(context.settings), options);
    return { rows, machine: rig.description };
  },

  sheets({ rows, machine }) {
    const sheet: Sheet = {
      title: `Medians of the rounds; in ${machine}`,
      head: ['', ...HEADS],
      rows: [...byContender(rows)].map(([name, own]) => line(name, own)),
      notes: [
        'Each target has one I/O queue. The host works over rxe, for nvmet-tcp over TCP; MTU 9000. nvmet works in the kernel.',
        ...failures(rows),
      ],
    };
    return [sheet];
  },

  targets: (['READ', 'WRITE'] as const).map((operation) => ({
    target: `random ${operation.toLowerCase()}s of 128 KiB from our target, relative to nvmet-tcp`,
    least: 1,
    judge: ({ rows }) => {
      const own = of(rows, 'bulk', operation);
      return quotient(best(select(own, { kind: 'ours' }), gbps), select(own, { contender: 'nvmet-tcp' })[0], gbps);
    },
  })),
};

const HEADS = [
  ...['median', 'p99'].map((what) => `µs of a read of ${bytes(SMALL)}, ${what}`),
  ...['reads', 'writes'].map((what) => `${what} of ${bytes(SMALL)} per second, 32 at once`),
  ...['reads', 'writes'].map((what) => `MiB/s, ${what} of ${bytes(LARGE)}, 8 at once`),
];

function line(name: string, rows: readonly Row[]): string[] {
  const none = reason(rows);
  if (none !== undefined) return [name, `skipped: ${none}`];
  const cell = (row: Row | undefined, value: number | undefined) => (value === undefined ? absent(row) : digits(value));
  const [ping] = of(rows, 'pingpong', 'READ');
  const both = (kind: Work['kind'], value: (row: Row | undefined) => number | undefined) =>
    (['READ', 'WRITE'] as const).map((operation) => {
      const [row] = of(rows, kind, operation);
      return cell(row, value(row));
    });
  return [
    ...[name, cell(ping, figure(ping, medianUs)), cell(ping, figure(ping, p99Us))],
    ...both('rate', (row) => figure(row, messages)),
    ...both('bulk', (row) => {
      const value = figure(row, gbps);
      return value && (value * 1e9) / 8 / 2 ** 20;
    }),
  ];
}
