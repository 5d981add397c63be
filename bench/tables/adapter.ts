/** What a peer that behaves like an adapter gets through. */
import { FromAdapter, SINKS, SinkOfAdapter } from '../contenders/adapter.js';
import { best, byContender, cpuPerByte, failures, figure, frames, gbps, reason, select } from '../report/figures.js';
import { digits, ratio, type Sheet } from '../report/sheet.js';
import { over, type Target } from '../report/targets.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import { WARM_BYTES, type Work } from '../work.js';
import { type Context, roundsOf, type Subject } from './subject.js';

/** MTU of the interfaces, for the path MTUs 1024 and 4096. */
const MTUS = [1500, 9000] as const;
const SIZE = 65536;

function works({ settings: { warmMs, ms } }: Context): Work[] {
  const same = { kind: 'bulk', operation: 'WRITE', size: SIZE, qps: 1, warmMs, ms, warmBytes: WARM_BYTES } as const;
  return MTUS.flatMap((mtu) => (['spin', 'sleep'] as const).map((waiting) => ({ ...same, mtu, waiting })));
}

export const adapter: Subject<Row[]> = {
  name: 'adapter',
  title: 'Bulk from a peer like an adapter: WRITEs of 64 KiB, one queue pair',

  async measure(context) {
    const sinks = Object.keys(SINKS).map((link) => new SinkOfAdapter(link as keyof typeof SINKS));
    const all = [...context.ours().map(({ options }) => new FromAdapter(options)), ...sinks];
    const rig = await context.host();
    rig.steer(true);
    try {
      return await measureRounds(rig, all, works(context), roundsOf(context));
    } finally {
      rig.steer(false);
    }
  },

  sheets(rows) {
    const sheet: Sheet = {
      title: 'Gbit/s of payload that arrives (medians of the rounds), and as a multiple of the best C program',
      head: ['', ...MTUS.flatMap((mtu) => [`MTU ${mtu}`, 'M frames/s', '× C', 'CPU ns/KiB'])],
      rows: [...byContender(rows)].map(([name, own]) => line(name, own, rows)),
      notes: [
        'The sender is the same C program in all rows: it sends one frame for each packet over AF_XDP, without a UDP checksum and with identifications that count, as a ConnectX does. ' +
          'The C programs count the frames of the other rows, and check and copy nothing. CPU: user and system time of both ends.',
        ...failures(rows),
      ],
    };
    return [sheet];
  },

  targets: [target(9000, 4096), target(1500, 1024)],
};

const bestOf = (rows: readonly Row[], kind: Row['kind'], mtu: number) => best(select(rows, { kind, mtu }), gbps);

function target(mtu: number, pathMtu: number): Target<Row[]> {
  return {
    target: `bulk from a peer like an adapter, path MTU ${pathMtu}, relative to the best C program that counts the frames`,
    least: 0.9,
    judge: (rows) => over(bestOf(rows, 'ours', mtu), bestOf(rows, 'bare', mtu)),
  };
}

function line(name: string, own: readonly Row[], rows: readonly Row[]): string[] {
  const none = reason(own);
  if (none !== undefined) return [name, `skipped: ${none}`];
  const cells = MTUS.flatMap((mtu) => {
    const row = select(own, { mtu })[0];
    const [value, perSecond, cpu] = [figure(row, gbps), figure(row, frames), figure(row, cpuPerByte)];
    const limit = figure(bestOf(rows, 'bare', mtu), gbps);
    return [digits(value), digits(perSecond && perSecond / 1e6), ratio(value, limit), digits(cpu && cpu * 1024)];
  });
  return [name, ...cells];
}
