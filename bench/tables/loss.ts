/** Throughput with packet loss: by our own fault injection here, by netem in the virtual machine. */
import { Ours } from '../contenders/ours.js';
import { byContender, failures, figure, gbps, reason, select } from '../report/figures.js';
import { digits, ratio, type Sheet } from '../report/sheet.js';
import { extreme, type Target } from '../report/targets.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import { roundsOf, type Subject } from './subject.js';

export const LOSSES = [0, 0.001, 0.01] as const;
export type LossRow = Row & { readonly loss: number };

export const loss: Subject<LossRow[]> = {
  name: 'loss',
  title: 'Loss: goodput of WRITE, 1 MiB',

  async measure(context) {
    const { warmMs, ms } = context.settings;
    const same = { kind: 'bulk', operation: 'WRITE', size: 1048576, qps: 1, waiting: 'spin', warmMs, ms } as const;
    const works = [1500, 9000].map((mtu) => ({ ...same, mtu }));
    const ours = context.ours().filter(({ options }) => options.mode === 'inline');
    const all = LOSSES.flatMap((drop) =>
      ours.map(({ options }) => ({ drop, contender: new Ours({ ...options, drop }) })),
    );
    const named = all.map(({ drop, contender }) => Object.assign(contender, { name: `${contender.name} ${drop}` }));
    const rows = await measureRounds(await context.host(), named, works, roundsOf(context));
    return rows.map((row) => {
      const [, name = '', drop] = /^(.*) ([\d.]+)$/.exec(row.contender) ?? [];
      return { ...row, contender: name, loss: Number(drop) };
    });
  },

  sheets: (rows) => [
    lossSheet(
      rows,
      'The option `fault` of `openDevice` drops the frames. It is active in the column without loss as well.',
    ),
  ],

  targets: [lossTarget('1 % loss by our fault injection')],
};

/** The goodput with 1 % loss: that of the best link at its worse MTU counts. */
export function lossTarget(how: string): Target<readonly LossRow[]> {
  return {
    target: `${how}: goodput relative to no loss`,
    least: 0.5,
    judge: (rows) => {
      const own = [...byContender(select(rows, { kind: 'ours' }))] as [string, LossRow[]][];
      return extreme(
        own.map(([by, each]) => {
          const mtus = [...new Set(each.map(({ work }) => work.mtu))];
          const worst = extreme(
            mtus.map((mtu) => {
              const [whole, rest] = [goodput(each, mtu, 0), goodput(each, mtu, 0.01)];
              return whole === undefined || rest === undefined ? undefined : { value: rest / whole };
            }),
            'lowest',
          );
          return worst && { ...worst, by };
        }),
        'highest',
      );
    },
  };
}

export function lossSheet(rows: readonly LossRow[], note: string): Sheet {
  const mtus = [...new Set(rows.map(({ work }) => work.mtu))];
  return {
    title:
      'Gbit/s of WRITE, 1 MiB, and the fraction of the throughput without loss; each end loses this part of the frames it sends',
    head: ['', ...mtus.flatMap((mtu) => LOSSES.map((part) => `MTU ${mtu}, ${part * 100} %`))],
    rows: [...byContender(rows)].map(([name, own]) => {
      const none = reason(own);
      if (none !== undefined) return [name, `skipped: ${none}`];
      return [name, ...mtus.flatMap((mtu) => LOSSES.map((part) => shown(own as LossRow[], mtu, part)))];
    }),
    notes: [note, ...failures(rows)],
  };
}

/** Returns the goodput at a fraction of lost frames, in Gbit/s. */
function goodput(rows: readonly LossRow[], mtu: number, part: number): number | undefined {
  return figure(
    select(rows, { mtu }).find((row) => (row as LossRow).loss === part),
    gbps,
  );
}

function shown(rows: readonly LossRow[], mtu: number, part: number): string {
  const [value, whole] = [goodput(rows, mtu, part), goodput(rows, mtu, 0)];
  if (value === undefined) return 'failed';
  return part === 0 ? digits(value) : `${digits(value)} (${ratio(value, whole)})`;
}
