/** The card alone, on the memory link, beside what no card can save. */
import type { CardResult, CardWork } from '../party/card.js';
import { bytes, digits, ratio, type Sheet } from '../report/sheet.js';
import { startLocal } from '../rig/local.js';
import { median } from '../rig/stats.js';
import type { Operation } from '../work.js';
import type { Context, Subject } from './subject.js';
import { measureSums, type SumsRow } from './sums.js';

export interface CardRow extends Omit<CardWork, 'ms'>, CardResult {}

export interface CardData {
  readonly rows: readonly CardRow[];
  /** Of one full packet's payload out of a message of each size. */
  readonly limits: readonly SumsRow[];
}

const PATH_MTUS = [1024, 4096] as const;
const SIZES = [8, 64, 4096, 65536, 1048576] as const;
const OPERATIONS: readonly Operation[] = ['WRITE', 'READ', 'SEND'];

export const card: Subject<CardData> = {
  name: 'card',
  title: 'The card alone: two of them on the memory link, in one thread',

  async measure({ settings: { rounds, ms }, progress }: Context) {
    const works = OPERATIONS.flatMap((operation) =>
      PATH_MTUS.flatMap((pathMtu) => SIZES.map((size) => ({ operation, pathMtu, size }))),
    ).filter(({ size, pathMtu }) => size >= 4096 || pathMtu === 1024);
    const all = works.map((work) => ({ work, results: [] as CardResult[] }));
    for (let round = 0; round < rounds; round++) {
      progress(`round ${round + 1} of ${rounds}: the card alone`);
      for (const { work, results } of all) results.push(await measured({ ...work, ms: ms / 3 }));
    }
    return {
      rows: all.map(({ work, results }) => ({ ...work, ...medians(results) })),
      limits: await measureSums(
        PATH_MTUS.flatMap((bytes) => SIZES.filter((size) => size >= bytes).map((span) => ({ bytes, span }))),
        ms / 8,
        rounds,
      ),
    };
  },

  sheets({ rows, limits }) {
    const sheet: Sheet = {
      title: 'One core does both ends; each end alone is what a card costs its own core',
      head: [
        ...['operation', 'bytes', 'path MTU', 'Gbit/s', 'M messages/s', 'requester alone, M/s', 'responder alone, M/s'],
        ...['ns/packet', 'of copy + CRC in WebAssembly', 'of the same in C'],
      ],
      rows: rows.map((row) => {
        const { operation, size, pathMtu, messagesPerSecond, requesterNs, responderNs, packets } = row;
        const rates = [messagesPerSecond / 1e6, 1000 / requesterNs, 1000 / responderNs].map(digits);
        const limit = limitOf(limits, row)?.ns;
        return [
          ...[operation, bytes(size), String(pathMtu), digits((messagesPerSecond * size * 8) / 1e9), ...rates],
          digits((requesterNs + responderNs) / packets),
          ...[limit?.copyAndSum, limit?.cCopyAndIsal ?? limit?.cCopyAndZlib].map((ns) => ratio(overLimit(row, ns), 1)),
        ];
      }),
      notes: [
        'Packets include acknowledgements. What cannot be saved is taken twice, once for each end: copying the payload of the same messages and its CRC (in C: ' +
          `memcpy and ${limits.some(({ ns }) => ns.cCopyAndIsal) ? 'ISA-L' : 'zlib'}). The memory link's own copy between the two cards counts as theirs.`,
      ],
    };
    return [sheet];
  },
};

/** By a process of its own: one that has seen dozens of cards calls the functions of each more slowly, and programs have one. */
async function measured(work: CardWork): Promise<CardResult> {
  const party = startLocal('card');
  try {
    return await party.call<CardResult>('measure', work);
  } finally {
    party.kill();
  }
}

/** Copy and CRC of the same bytes: those of a message of that size, in full packets. */
export function limitOf(limits: readonly SumsRow[], { size, pathMtu }: CardRow): SumsRow | undefined {
  return limits.find(({ bytes, span }) => bytes === pathMtu && span === size);
}

/** Time of a message at both ends over that of copying and summing its bytes at both. @param limit ns for one packet's payload */
export function overLimit(
  { size, pathMtu, requesterNs, responderNs }: CardRow,
  limit: number | undefined,
): number | undefined {
  return limit === undefined ? undefined : (requesterNs + responderNs) / (2 * limit * Math.ceil(size / pathMtu));
}

function medians(results: readonly CardResult[]): CardResult {
  const of = (name: keyof CardResult) => median(results.map((result) => result[name]));
  return {
    messagesPerSecond: of('messagesPerSecond'),
    requesterNs: of('requesterNs'),
    responderNs: of('responderNs'),
    packets: of('packets'),
  };
}
