/** The cost of several cards of one address to each other: bulk from a peer like an adapter. */
import { FromAdapter, type Receivers, SinkOfAdapter } from '../contenders/adapter.js';
import { canPoll } from '../contenders/ours.js';
import { byContender, cpuPerByte, failures, figure, gbps, reason, select } from '../report/figures.js';
import { digits, ratio, type Sheet } from '../report/sheet.js';
import { over, type Target } from '../report/targets.js';
import type { Row } from '../rig/rounds.js';
import { MTUS, measureFromAdapter } from './fromadapter.js';
import type { Subject } from './subject.js';

/** The card is a thread of its own, which sleeps when it has nothing to do: the cards may share CPUs. */
const LINK = { link: 'packet', mode: 'worker' } as const;

const ONE = 'one card';
const BESIDE_IDLE = 'one card, beside an idle one';
const TWO = 'two cards';
const STEERED = ', flow steering';
const [ONE_PROGRAM, TWO_PROGRAMS] = ['C, TPACKET_V3, one program', 'C, TPACKET_V3, two programs'] as const;

function contenders(): (FromAdapter | SinkOfAdapter)[] {
  const ours = (name: string, more: Partial<Receivers>) => [
    new FromAdapter({ ...LINK, ...more }, name),
    new FromAdapter({ ...LINK, ...more, flowSteering: true }, name + STEERED),
  ];
  const waiting = canPoll(LINK) ? 'spin' : 'sleep';
  return [
    new FromAdapter(LINK, ONE),
    ...ours(BESIDE_IDLE, { idle: 1 }),
    ...ours(TWO, { devices: 2 }),
    new SinkOfAdapter('ring', 1, waiting, ONE_PROGRAM),
    new SinkOfAdapter('ring', 2, waiting, TWO_PROGRAMS),
  ];
}

export const cards: Subject<Row[]> = {
  name: 'cards',
  title: 'Several cards of one address: WRITEs of 64 KiB from a peer like an adapter, two queue pairs',

  measure: (context) => measureFromAdapter(context, contenders(), 2),

  sheets(rows) {
    const sheet: Sheet = {
      title: 'Gbit/s of payload that arrives (medians of the rounds), and as a multiple of one card or one program',
      head: ['', ...MTUS.flatMap((mtu) => [`MTU ${mtu}`, '× one', 'CPU ns/KiB'])],
      rows: [...byContender(rows)].map(([name, own]) => line(name, own, rows)),
      notes: [
        'The link is packet, in worker mode, and each card is in a process of its own. All receivers share the CPUs of one end. CPU: user and system time of both ends, without the idle card.',
        ...failures(rows),
      ],
    };
    return [sheet];
  },

  targets: MTUS.map(target),
};

const rowOf = (rows: readonly Row[], contender: string, mtu: number) => select(rows, { contender, mtu })[0];

function target(mtu: number): Target<Row[]> {
  return {
    target: `two cards of one address, relative to one card, divided by the same of two C programs, MTU ${mtu}`,
    least: 0.9,
    judge: (rows) => {
      const find = (contender: string) => rowOf(rows, contender, mtu);
      const [ours, theirs] = [over(find(TWO + STEERED), find(ONE)), over(find(TWO_PROGRAMS), find(ONE_PROGRAM))];
      return ours && theirs && { value: ours.value / theirs.value };
    },
  };
}

function line(name: string, own: readonly Row[], rows: readonly Row[]): string[] {
  const none = reason(own);
  if (none !== undefined) return [name, `skipped: ${none}`];
  const cells = MTUS.flatMap((mtu) => {
    const row = select(own, { mtu })[0];
    const [value, cpu] = [figure(row, gbps), figure(row, cpuPerByte)];
    const one = figure(rowOf(rows, own[0]?.kind === 'bare' ? ONE_PROGRAM : ONE, mtu), gbps);
    return [digits(value), ratio(value, one), digits(cpu && cpu * 1024)];
  });
  return [name, ...cells];
}
