/** The table of the demo. */
import Table from 'cli-table3';
import { sizeText, styled } from '../output.js';
import type { Row } from './active.js';

const HEAD = [
  'link',
  'operation',
  'size',
  'count',
  'in flight',
  'median us',
  '99% us',
  'Gbit/s',
  'retransmits',
  'verified',
];

export function tableOf(rows: readonly Row[]): string {
  const table = new Table({
    head: HEAD.map((title) => styled('bold', title)),
    style: { head: [], border: [], compact: true },
    colAligns: ['left', 'left', ...HEAD.slice(2, -1).map(() => 'right' as const), 'left'],
  });
  for (const { link, operation, size, count, inFlight, latency, gbitPerSecond, retransmits, wrong } of rows)
    table.push([
      link,
      operation,
      sizeText(size),
      count,
      inFlight,
      latency.median.toFixed(1),
      latency.p99.toFixed(1),
      gbitPerSecond.toFixed(3),
      retransmits,
      wrong === '' ? styled('green', 'every byte') : styled('red', 'WRONG'),
    ]);
  return table.toString();
}
