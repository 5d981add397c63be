/** Many queue pairs. */

import { digits, ratio, type Sheet } from '../report/sheet.js';
import { startLocal } from '../rig/local.js';
import { median } from '../rig/stats.js';
import type { IdleResult, ScaleResult } from '../workers/scale.js';
import type { Context, Subject } from './subject.js';

export interface ScaleData {
  readonly rows: readonly { readonly qps: number; readonly messageNs: number }[];
  readonly idle: IdleResult;
}

const COUNTS = [10, 1000, 10_000] as const;

export const scale: Subject<ScaleData> = {
  name: 'scale',
  title: 'Scale: many queue pairs on one card',

  async measure({ settings: { rounds, ms }, progress }: Context) {
    const all = COUNTS.map((qps) => ({ qps, ns: [] as number[] }));
    const worker = startLocal('scale');
    try {
      // Creating ten thousand queue pairs takes longer than measuring them.
      for (let round = 0; round < Math.min(3, rounds); round++) {
        for (const { qps, ns } of all) {
          progress(`round ${round + 1}: ${qps} queue pairs`);
          ns.push((await worker.callWithin<ScaleResult>(60_000, 'measure', qps, ms)).messageNs);
        }
      }
      const idle = await worker.call<IdleResult>('idle');
      return { rows: all.map(({ qps, ns }) => ({ qps, messageNs: median(ns) })), idle };
    } finally {
      worker.kill();
    }
  },

  sheets({ rows, idle }) {
    const first = rows[0]?.messageNs;
    const sheet: Sheet = {
      title:
        'WRITEs of 8 bytes over all queue pairs in turn, 64 in flight; two cards on the memory link, one core runs both ends',
      head: ['queue pairs', 'ns/message', 'of ten'],
      rows: rows.map(({ qps, messageNs }) => [qps.toLocaleString('en'), digits(messageNs), ratio(messageNs, first)]),
      notes: [
        `An idle queue pair takes ${Math.round(idle.bytes)} bytes of card memory with the smallest rings, ${Math.round(idle.bytesWithoutRings)} without rings.`,
      ],
    };
    return [sheet];
  },

  targets: [
    {
      target: '10,000 queue pairs: time of a message relative to ten queue pairs',
      most: 1.4,
      judge: ({ rows }) => {
        const [few, many] = [rows[0]?.messageNs, rows.find(({ qps }) => qps === 10_000)?.messageNs];
        return few === undefined || many === undefined ? undefined : { value: many / few };
      },
    },
    {
      target: 'card memory of an idle queue pair without its rings',
      most: 4096,
      unit: ' bytes',
      judge: ({ idle }) => ({ value: idle.bytesWithoutRings }),
    },
  ],
};
