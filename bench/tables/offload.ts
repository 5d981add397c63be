/** The ICRC offload of the links: bulk and latency with it, and without it. */
import { ICRC_BY_CARD, Ours } from '../contenders/ours.js';
import { absent, cpuPerByte, failures, figure, gbps, medianUs, reason, select } from '../report/figures.js';
import { bytes, digits, ratio, type Sheet } from '../report/sheet.js';
import { extreme, over } from '../report/targets.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import { WARM_BYTES, type Work } from '../work.js';
import { MTUS, OPERATIONS, SIZES } from './bulk.js';
import { type Context, roundsOf, type Subject } from './subject.js';

const SMALL = 64;

function works({ settings: { warmMs, ms } }: Context): Work[] {
  const same = { qps: 1, waiting: 'spin', warmMs, ms } as const;
  const bulk = MTUS.flatMap((mtu) =>
    SIZES.flatMap((size) =>
      OPERATIONS.map((operation): Work => ({ ...same, kind: 'bulk', warmBytes: WARM_BYTES, mtu, size, operation })),
    ),
  );
  return [...bulk, { ...same, kind: 'pingpong', operation: 'SEND', size: SMALL, mtu: MTUS[1] }];
}

/** A link with the offload, and the same without. */
interface Pair {
  readonly name: string;
  readonly on: readonly Row[];
  readonly off: readonly Row[];
}

function pairs(rows: readonly Row[]): Pair[] {
  const names = [...new Set(rows.map(({ contender }) => contender))].filter((name) => !name.endsWith(ICRC_BY_CARD));
  return names.map((name) => ({
    name,
    on: select(rows, { contender: name }),
    off: select(rows, { contender: `${name}${ICRC_BY_CARD}` }),
  }));
}

export const offload: Subject<Row[]> = {
  name: 'offload',
  title: 'ICRC offload: the same card with the ICRC computed by its link, and without',

  async measure(context) {
    const inline = context.ours().filter(({ options: { mode } }) => mode === 'inline');
    const without = inline.map(({ options }) => new Ours({ ...options, icrcOffload: false }));
    return measureRounds(await context.host(), [...inline, ...without], works(context), roundsOf(context));
  },

  sheets(rows) {
    const sheet: Sheet = {
      title: 'Gbit/s of payload and CPU ns/KiB with the offload, and × what they are without (medians of the rounds)',
      head: [
        '',
        'operation',
        ...MTUS.flatMap((mtu) => SIZES.flatMap((size) => [`MTU ${mtu}, ${bytes(size)}`, '×', 'ns/KiB', '×'])),
      ],
      rows: pairs(rows).flatMap(lines),
      notes: ['Both ends poll.', ...failures(rows)],
    };
    const latency: Sheet = {
      title: `µs of a SEND ping-pong of ${SMALL} bytes`,
      head: ['', 'with', 'without'],
      rows: pairs(rows).map(({ name, on, off }) => [name, pingpong(on), pingpong(off)]),
    };
    return [sheet, latency];
  },

  targets: [
    {
      target: 'bulk WRITE 1 MiB, path MTU 4096, with the ICRC offload relative to without',
      least: 1.25,
      judge: (rows) =>
        extreme(
          pairs(rows).map(({ on, off }) => over(...both(on, off, { mtu: 9000, size: SIZES[1], operation: 'WRITE' }))),
          'highest',
        ),
    },
    {
      target: 'bulk of any operation and size with the ICRC offload relative to without',
      // the rounds of one row differ by so much
      least: 0.95,
      judge: (rows) =>
        extreme(
          pairs(rows).flatMap(({ on, off }) =>
            on
              .filter(({ work }) => work.kind === 'bulk')
              .map(({ work: { mtu, size, operation } }) => over(...both(on, off, { mtu, size, operation }))),
          ),
          'lowest',
        ),
    },
  ],
};

function both(
  on: readonly Row[],
  off: readonly Row[],
  work: Pick<Work, 'mtu' | 'size' | 'operation'>,
): [Row | undefined, Row | undefined] {
  return [select(on, work)[0], select(off, work)[0]];
}

function lines({ name, on, off }: Pair): string[][] {
  const none = reason(on);
  if (none !== undefined) return [[name, `skipped: ${none}`]];
  return OPERATIONS.map((operation) => {
    const cells = MTUS.flatMap((mtu) =>
      SIZES.flatMap((size) => {
        const [own, other] = both(on, off, { mtu, size, operation });
        const [rate, otherRate] = [own, other].map((row) => figure(row, gbps));
        const [cpu, otherCpu] = [own, other].map((row) => figure(row, cpuPerByte));
        return [
          rate === undefined ? absent(own) : digits(rate),
          ratio(rate, otherRate),
          digits(cpu && cpu * 1024),
          ratio(cpu, otherCpu),
        ];
      }),
    );
    return [name, operation, ...cells];
  });
}

function pingpong(rows: readonly Row[]): string {
  const [row] = rows.filter(({ work }) => work.kind === 'pingpong');
  const median = figure(row, medianUs);
  return median === undefined ? absent(row) : digits(median);
}
