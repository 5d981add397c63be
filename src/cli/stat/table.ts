/** Counters as a table: a row for each, a column for the device and for each queue pair. */
import Table from 'cli-table3';
import { explainDrop, type PublishedDevice } from '../../index.js';

/** Queue pairs that have a column of their own. */
const MOST_COLUMNS = 8;

export interface TableOptions {
  /** Also the counters that are 0 everywhere. */
  readonly all: boolean;
  /** Behind the table what each counter of silent drops that it has means. */
  readonly explain?: boolean;
  /** What was seen before, and how many seconds ago: the device's column then tells the rate, too. */
  readonly before?: PublishedDevice | undefined;
  readonly seconds?: number;
}

export function describe(device: PublishedDevice, options: TableOptions): string {
  const { name, pid, link, interface: end, state, addresses } = device;
  const shown = device.qps.slice(0, MOST_COLUMNS);
  const lines = [`${name}, process ${pid}: ${link} link on ${end}, ${state}, ${addresses.join(' ') || 'no address'}`];
  for (const { qpNum, type, state, peer } of shown)
    lines.push(`  qp ${hex(qpNum)} ${type} ${state}${peer ? ` to ${peer.address} qp ${hex(peer.qpn)}` : ''}`);
  if (device.qps.length > shown.length)
    lines.push(`  and ${device.qps.length - shown.length} more queue pairs, which --json shows`);
  const table = new Table({
    head: ['counter', 'device', ...shown.map(({ qpNum }) => hex(qpNum))],
    style: { head: [], border: [], compact: true },
    colAligns: ['left', 'right', ...shown.map(() => 'right' as const)],
    chars: PLAIN,
  });
  const reasons: string[] = [];
  for (const [counter, value] of Object.entries(device.counters)) {
    const ofPairs = shown.map((qp) => qp.counters[counter]);
    if (!options.all && value === 0 && !ofPairs.some((count) => count)) continue;
    table.push([counter, `${value}${rate(counter, value, options)}`, ...ofPairs.map((count) => count ?? '')]);
    const reason = explainDrop(counter);
    if (reason !== undefined) reasons.push(`  ${counter}: ${reason}`);
  }
  if (table.length > 0) lines.push(table.toString());
  if (options.explain) lines.push(...reasons);
  return `${lines.join('\n')}\n`;
}

function rate(counter: string, value: number, { before, seconds }: TableOptions): string {
  const earlier = before?.counters[counter];
  if (earlier === undefined || seconds === undefined || earlier === value) return '';
  return ` (${Math.round((value - earlier) / seconds)}/s)`;
}

const hex = (qpn: number) => `0x${qpn.toString(16).padStart(6, '0')}`;

/** A table without lines. */
const PLAIN = Object.fromEntries(
  [
    'top top-mid top-left top-right bottom bottom-mid bottom-left bottom-right',
    'left left-mid mid mid-mid right right-mid middle',
  ]
    .join(' ')
    .split(' ')
    .map((name) => [name, '']),
);
