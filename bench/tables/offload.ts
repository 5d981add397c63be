/** The ICRC offload of the links: bulk and latency with it, and without it. */
import { ICRC_BY_CARD, Ours } from '../contenders/ours.js';
import {
  absent,
  cpuPerByte,
  type Figure,
  failures,
  figure,
  gbps,
  medianUs,
  reason,
  select,
} from '../report/figures.js';
import { bytes, digits, ratio, type Sheet } from '../report/sheet.js';
import { extreme, type Finding } from '../report/targets.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import { median } from '../rig/stats.js';
import type { Work } from '../work.js';
import { bulkWorks, MTUS, OPERATIONS, SIZES } from './bulk.js';
import { type CrcRow, measureCrc } from './crc.js';
import { type Context, roundsOf, type Subject } from './subject.js';

export interface OffloadData {
  readonly rows: readonly Row[];
  /** The cost of a copy and a CRC of one full packet's payload at MTU 9000. */
  readonly limits: readonly CrcRow[];
}

const SMALL = 64;
/** Payload of a full packet at MTU 9000. */
const PACKET_BYTES = 4096;

function works(context: Context): Work[] {
  const { warmMs, ms } = context.settings;
  const pingPong = { kind: 'pingpong', operation: 'SEND', size: SMALL, mtu: MTUS[1], waiting: 'spin', qps: 1 } as const;
  return [...bulkWorks(context, ['spin']), { ...pingPong, warmMs, ms }];
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

/** Returns the rows of both for one work. */
function rowsOf({ on, off }: Pair, { mtu, size, operation }: Pick<Work, 'mtu' | 'size' | 'operation'>) {
  const [own, other] = [on, off].map((rows) => select(rows, { mtu, size, operation })[0]);
  return { own, other };
}

export const offload: Subject<OffloadData> = {
  name: 'offload',
  title: 'ICRC offload: the same card with the ICRC computed by its link, and without',

  async measure(context) {
    const inline = context.ours().filter(({ options: { mode } }) => mode === 'inline');
    // one after the other, so that both meet the same machine
    const contenders = inline.flatMap((ours) => [ours, new Ours({ ...ours.options, icrcOffload: false })]);
    const { ms, rounds } = context.settings;
    return {
      rows: await measureRounds(await context.host(), contenders, works(context), roundsOf(context)),
      limits: await measureCrc([{ bytes: PACKET_BYTES, span: SIZES[1] }], ms / 8, rounds),
    };
  },

  sheets({ rows, limits }) {
    const sheet: Sheet = {
      title:
        'Gbit/s of payload and CPU ns/KiB with the offload, and × what they are without in the same round (medians)',
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
      rows: pairs(rows).map((pair) => {
        const { own, other } = rowsOf(pair, { mtu: MTUS[1], size: SMALL, operation: 'SEND' });
        return [pair.name, ...[own, other].map((row) => digits(figure(row, medianUs)) || absent(row))];
      }),
    };
    const [limit] = limits.map(({ ns }) => ns.cCopyAndOffload ?? ns.cCopyAndIsal ?? ns.cCopyAndZlib);
    const packets: Sheet = {
      title: `ns for each packet of 4 KiB of ${bytes(SIZES[1])}, and × copy and CRC of it in C (${digits(limit)} ns)`,
      head: ['', 'operation', 'with', '×', 'without', '×'],
      rows: pairs(rows).flatMap((pair) =>
        OPERATIONS.map((operation) => {
          const { own, other } = rowsOf(pair, { mtu: MTUS[1], size: SIZES[1], operation });
          const both = [own, other].map((row) => figure(row, packetNs));
          return [pair.name, operation, ...both.flatMap((ns) => [digits(ns), ratio(ns, limit)])];
        }),
      ),
    };
    return [sheet, packets, latency];
  },

  targets: [
    {
      target: 'bulk WRITE 1 MiB, path MTU 4096, with the ICRC offload relative to without',
      least: 1.25,
      judge: ({ rows }) =>
        extreme(
          gains(rows, ({ mtu, size, operation }) => mtu === MTUS[1] && size === SIZES[1] && operation === 'WRITE'),
          'highest',
        ),
    },
    {
      target: 'bulk of any operation and size with the ICRC offload relative to without',
      // the rounds of one row differ by so much
      least: 0.95,
      judge: ({ rows }) =>
        extreme(
          gains(rows, ({ kind }) => kind === 'bulk'),
          'lowest',
        ),
    },
  ],
};

/** Returns how much higher the throughput of each link is with the offload, for some of the works. */
function gains(rows: readonly Row[], isWanted: (work: Work) => boolean): Finding[] {
  return pairs(rows).flatMap((pair) =>
    pair.on
      .filter(({ work }) => isWanted(work))
      .flatMap(({ work }) => {
        const { own, other } = rowsOf(pair, work);
        const value = relative(own, other, gbps);
        const by = `${pair.name}, ${work.operation} ${bytes(work.size)}, MTU ${work.mtu}`;
        return value === undefined ? [] : { value, by };
      }),
  );
}

/** Returns the median of the ratios of the rounds: in a round, both meet the same machine. */
function relative(row: Row | undefined, beside: Row | undefined, of: Figure): number | undefined {
  const ratios = (row?.samples ?? []).flatMap((sample, round) => {
    const other = beside?.samples[round];
    const [value, to] = [of(sample), other && of(other)];
    return value === undefined || to === undefined ? [] : value / to;
  });
  return ratios.length === 0 ? undefined : median(ratios);
}

/** Returns the time between two packets of 4 KiB: both ends work on different ones meanwhile. */
const packetNs: Figure = (sample) => sample.gbps && (PACKET_BYTES * 8) / sample.gbps;

function lines(pair: Pair): string[][] {
  const none = reason(pair.on);
  if (none !== undefined) return [[pair.name, `skipped: ${none}`]];
  return OPERATIONS.map((operation) => {
    const cells = MTUS.flatMap((mtu) =>
      SIZES.flatMap((size) => {
        const { own, other } = rowsOf(pair, { mtu, size, operation });
        const [rate, cpu] = [gbps, cpuPerByte].map((of) => figure(own, of));
        return [
          rate === undefined ? absent(own) : digits(rate),
          ratio(relative(own, other, gbps), 1),
          digits(cpu && cpu * 1024),
          ratio(relative(own, other, cpuPerByte), 1),
        ];
      }),
    );
    return [pair.name, operation, ...cells];
  });
}
