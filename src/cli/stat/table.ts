/** Counters as a table: a row for each, a column for the device and for each queue pair. */
import Table from 'cli-table3';
import { printable } from '../../base/printable.js';
import { explainDrop, type PublishedDevice } from '../../index.js';
import { qpnText } from '../hex.js';
import { PLAIN_TABLE, styled } from '../output.js';

/** Queue pairs that get a column. */
const MAX_QP_COLUMNS = 8;

export interface TableOptions {
  /** Include the counters that are 0 everywhere. */
  readonly all: boolean;
  /** Explain, below the table, each counter of silent drops that the table shows. */
  readonly explain?: boolean;
  /** The sample taken `seconds` ago. With it the device's column shows rates as well. */
  readonly before?: PublishedDevice | undefined;
  readonly seconds?: number;
}

export function describe(device: PublishedDevice, options: TableOptions): string {
  const { name, pid, command, link, interface: end, state, addresses } = device;
  const shown = device.qps.slice(0, MAX_QP_COLUMNS);
  const lines = [
    `${styled('bold', printable(name))}, process ${pid} (${printable(command)}): ${link} link on ${end}, ${state}, ${addresses.join(' ') || 'no address'}`,
  ];
  for (const { qpNum, type, state, peer } of shown)
    lines.push(`  qp ${qpnText(qpNum)} ${type} ${state}${peer ? ` to ${peer.address} qp ${qpnText(peer.qpNum)}` : ''}`);
  if (device.qps.length > shown.length)
    lines.push(`  and ${device.qps.length - shown.length} more queue pairs; --json shows them`);
  const table = new Table({
    head: ['counter', 'device', ...shown.map(({ qpNum }) => qpnText(qpNum))].map((title) => styled('bold', title)),
    style: { head: [], border: [], compact: true },
    colAligns: ['left', 'right', ...shown.map(() => 'right' as const)],
    chars: PLAIN_TABLE,
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
