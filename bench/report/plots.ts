/** The plots of bench/README.md. */
import type { Row } from '../rig/rounds.js';
import type { Results } from '../tables/subjects.js';
import { best, byContender, type Figure, figure, gbps, medianUs, select } from './figures.js';
import { type Bar, chart } from './svg.js';

/** Returns SVG texts by file name, for the tables that have results. */
export function plots({ bulk, latency }: Results, subtitle: string): Record<string, string> {
  const all: Record<string, string> = {};
  if (bulk?.some(({ samples }) => samples.length > 0)) {
    const groups = [1500, 9000].map((mtu) => ({
      label: `MTU ${mtu}`,
      bars: bars(
        select(bulk, { mtu, size: 2 ** 20 }),
        gbps,
        'highest',
        ({ work, kind }) => kind !== 'ours' || work.operation === 'WRITE',
      ),
    }));
    all['bulk.svg'] = chart({
      title: 'Bulk: 1 MiB messages, WRITE where it is RDMA',
      unit: 'Gbit/s, more is better',
      subtitle,
      groups,
    });
  }
  if (latency?.some(({ samples }) => samples.length > 0)) {
    const groups = (['spin', 'sleep'] as const).map((waiting) => ({
      label: waiting === 'spin' ? 'both ends spin' : 'both ends sleep in the event loop, or in the kernel',
      bars: bars(select(latency, { waiting, operation: 'SEND' }), medianUs, 'lowest', () => true),
    }));
    all['latency.svg'] = chart({
      title: 'Latency: 64 bytes to and fro, SEND where it is RDMA',
      unit: 'µs, median, less is better',
      subtitle,
      groups,
    });
  }
  return all;
}

function bars(rows: readonly Row[], of: Figure, which: 'highest' | 'lowest', isShown: (row: Row) => boolean): Bar[] {
  const each = [...byContender(rows.filter(isShown))].flatMap(([label, own]) => {
    const row = best(own, of, which);
    const value = figure(row, of);
    // another build is only in tables
    if (row === undefined || value === undefined || row.kind === 'before') return [];
    return [{ label, value, kind: row.kind }];
  });
  return each.sort((a, b) => (which === 'highest' ? b.value - a.value : a.value - b.value));
}
