/** Message rate of small messages. */
import { Bare } from '../contenders/native.js';
import { NodeDgram } from '../contenders/node.js';
import {
  absent,
  byContender,
  cpuPerMessage,
  failures,
  figure,
  frames,
  isOfOurs,
  messages,
  reason,
  select,
} from '../report/figures.js';
import { bytes, digits, ratio, type Sheet } from '../report/sheet.js';
import { extreme } from '../report/targets.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import type { Operation, Work } from '../work.js';
import { type Context, roundsOf, type Subject } from './subject.js';

export const SIZES = [8, 64] as const;
export const QPS = [1, 8] as const;

function works({ settings: { warmMs, ms } }: Context): Work[] {
  const same = { kind: 'rate', mtu: 1500, warmMs, ms } as const;
  return SIZES.flatMap((size) =>
    QPS.flatMap((qps) =>
      (['spin', 'sleep'] as const).flatMap((waiting) =>
        (['SEND', 'WRITE'] as const).map((operation) => ({ ...same, size, qps, operation, waiting })),
      ),
    ),
  );
}

export const rate: Subject<Row[]> = {
  name: 'rate',
  title: 'Message rate: 8 and 64 bytes, many in flight',
  comparesBuilds: true,

  async measure(context) {
    const bare = ['packet', 'udp'].flatMap((link) => [new Bare(link, false), new Bare(link, true)]);
    const all = [...context.oursOfBuilds(), new NodeDgram(), ...bare, new Bare('xdp', false)];
    return measureRounds(await context.host(), all, works(context), roundsOf(context));
  },

  sheets(rows) {
    const cases = SIZES.flatMap((size) => QPS.map((qps) => ({ size, qps })));
    const sheet: Sheet = {
      title: 'Million messages per second (medians), and the frames of the first end with 64 bytes on one queue pair',
      head: [
        ...['', 'operation', ...cases.map(({ size, qps }) => `${bytes(size)}, ${qps} QP${qps > 1 ? 's' : ''}`)],
        ...['M frames/s', 'of the bare link', 'CPU ns/message'],
      ],
      rows: [...byContender(rows)].flatMap(([name, own]) => lines(name, own, rows, cases)),
      notes: [
        'Frames of ours include acknowledgements. The bare link is the same link without segmentation offload. CPU: user and system time of both ends.',
        ...failures(rows),
      ],
    };
    return [sheet];
  },

  targets: [
    {
      target: 'message rate: frames/s relative to the bare link',
      least: 0.7,
      judge: (rows) =>
        extreme(
          select(rows, { kind: 'ours', size: 64 }).map((row) => {
            const [value, bare] = [figure(row, frames), bareFrames(rows, row.link)];
            if (value === undefined || bare === undefined) return undefined;
            return { value: value / bare, by: `${row.contender}, ${row.work.qps} QPs, ${row.work.operation}` };
          }),
          'highest',
        ),
    },
  ],
};

function lines(
  name: string,
  own: readonly Row[],
  rows: readonly Row[],
  cases: readonly { size: number; qps: number }[],
): string[][] {
  const none = reason(own);
  if (none !== undefined) return [[name, `skipped: ${none}`]];
  const isOurs = isOfOurs(own[0]);
  const kinds = [...new Set(own.map(({ work }) => `${work.operation} ${work.waiting}`))];
  return kinds.map((kind) => {
    const [operation, waiting] = kind.split(' ') as [Operation, Work['waiting']];
    const row = (size: number, qps: number) => select(own, { operation, waiting, size, qps })[0];
    const rates = cases.map(({ size, qps }) => {
      const perSecond = figure(row(size, qps), messages);
      return perSecond === undefined ? absent(row(size, qps)) : digits(perSecond / 1e6);
    });
    const judged = row(64, 1);
    const perSecond = figure(judged, frames);
    const bare = isOurs ? bareFrames(rows, own[0]?.link) : undefined;
    const head = [name, isOurs ? `${operation}${waiting === 'sleep' ? ', asleep' : ''}` : ''];
    return [
      ...head,
      ...rates,
      digits(perSecond && perSecond / 1e6),
      ratio(perSecond, bare),
      digits(figure(judged, cpuPerMessage)),
    ];
  });
}

/** Returns the frames per second that a link carries one by one without a protocol. */
function bareFrames(rows: readonly Row[], link: string | undefined): number | undefined {
  return figure(select(rows, { contender: `C, bare ${link}`, size: 64 })[0], frames);
}
