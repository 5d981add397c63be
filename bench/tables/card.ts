/** The card alone, on the memory link, and the least cost of every card. */

import { bytes, digits, ratio, type Sheet } from '../report/sheet.js';
import { extreme } from '../report/targets.js';
import { startLocal } from '../rig/local.js';
import { median } from '../rig/stats.js';
import type { Operation } from '../work.js';
import type { CardResult, CardWork } from '../workers/card.js';
import { type CrcRow, measureCrc } from './crc.js';
import type { Context, Subject } from './subject.js';

export interface CardRow extends Omit<CardWork, 'ms'>, CardResult {}

export interface CardData {
  readonly rows: readonly CardRow[];
  /** The cost of one full packet's payload, for each message size. */
  readonly limits: readonly CrcRow[];
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
      limits: await measureCrc(
        PATH_MTUS.flatMap((bytes) => SIZES.filter((size) => size >= bytes).map((span) => ({ bytes, span }))),
        ms / 8,
        rounds,
      ),
    };
  },

  sheets({ rows, limits }) {
    const sheet: Sheet = {
      title: 'One core runs both ends; an end alone is the cost of a card on a core of its own',
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
        'Packets include acknowledgements. The reference counts copy and CRC of the same payload twice, once for each end (in C: ' +
          `memcpy and ${limits.some(({ ns }) => ns.cCopyAndIsal) ? 'ISA-L' : 'zlib'}). The copy of the memory link between the two cards counts as theirs.`,
      ],
    };
    return [sheet];
  },

  targets: [
    {
      target: 'the card alone, messages of 8 B: million per second of the slower end',
      least: 6,
      judge: ({ rows }) =>
        extreme(
          rows
            .filter(({ size }) => size === 8)
            .map(({ operation, requesterNs, responderNs }) => ({
              value: 1000 / Math.max(requesterNs, responderNs),
              by: operation,
            })),
          'highest',
        ),
    },
    {
      target: 'the card alone, packets of 4 KiB: time relative to copy + CRC',
      most: 1.4,
      judge: ({ rows, limits }) => {
        const row = rows.find(
          ({ operation, size, pathMtu }) => operation === 'WRITE' && size === SIZES[4] && pathMtu === 4096,
        );
        const value = row && overLimit(row, limitOf(limits, row)?.ns.copyAndSum);
        return value === undefined ? undefined : { value };
      },
    },
  ],
};

/**
 * Measures in a new process. A process that has opened dozens of cards calls their functions more slowly, and a program
 * usually has one card.
 */
async function measured(work: CardWork): Promise<CardResult> {
  const worker = startLocal('card');
  try {
    return await worker.call<CardResult>('measure', work);
  } finally {
    worker.kill();
  }
}

/** Returns the cost of copy and CRC for the packets of a message of the same size. */
function limitOf(limits: readonly CrcRow[], { size, pathMtu }: CardRow): CrcRow | undefined {
  return limits.find(({ bytes, span }) => bytes === pathMtu && span === size);
}

/**
 * Returns the time of a message at both ends, divided by the time of copy and CRC of its bytes at both ends.
 * @param limit ns for one packet's payload
 */
function overLimit(
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
