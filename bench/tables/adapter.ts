/** The throughput from a peer that behaves like an adapter. */
import { FromAdapter, SINKS, SinkOfAdapter } from '../contenders/adapter.js';
import { best, byContender, cpuPerByte, failures, figure, frames, gbps, reason, select } from '../report/figures.js';
import { digits, ratio, type Sheet } from '../report/sheet.js';
import { over, type Target } from '../report/targets.js';
import type { Row } from '../rig/rounds.js';
import { MTUS, measureFromAdapter } from './fromadapter.js';
import type { Subject } from './subject.js';

export const adapter: Subject<Row[]> = {
  name: 'adapter',
  title: 'Bulk from a peer like an adapter: WRITEs of 64 KiB, one queue pair',

  measure(context) {
    const sinks = Object.keys(SINKS).map((link) => new SinkOfAdapter(link as keyof typeof SINKS));
    const ours = context.ours().map(({ options }) => new FromAdapter(options));
    return measureFromAdapter(context, [...ours, ...sinks], 1);
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
