/**
 * The figures of README.md: bulk, latency and message rate, each beside Node's own sockets, and bulk from a peer that
 * behaves like an adapter.
 */
import type { Row } from '../rig/rounds.js';
import type { Results } from '../tables/subjects.js';
import { best, type Figure, figure, gbps, medianUs, messages, select } from './figures.js';
import { digits, type Sheet } from './sheet.js';

const MIB = 2 ** 20;

export function summarySheet({ bulk = [], adapter = [], latency = [], rate = [] }: Results): Sheet {
  const ours = { kind: 'ours', operation: 'SEND' } as const;
  const million: Figure = (sample) => messages(sample) && (messages(sample) as number) / 1e6;
  const cell = (row: Row | undefined, of: Figure, unit: string) =>
    row && figure(row, of) !== undefined ? `${digits(figure(row, of))} ${unit} (${row.contender})` : 'not measured';
  const line = (what: string, of: Figure, unit: string, own: Row | undefined, node: Row | undefined) => [
    what,
    cell(own, of, unit),
    cell(node, of, unit),
  ];
  const jumbo = { mtu: 9000, size: MIB } as const;
  return {
    title: 'wasm-roce and others, measured in one run',
    head: ['', 'wasm-roce', 'beside'],
    rows: [
      line(
        'bulk: RDMA WRITE of 1 MiB, MTU 9000',
        gbps,
        'Gbit/s',
        best(select(bulk, { ...ours, ...jumbo, operation: 'WRITE' }), gbps),
        select(bulk, { ...jumbo, contender: 'Node net' })[0],
      ),
      line(
        'bulk from a peer like an adapter, MTU 9000',
        gbps,
        'Gbit/s',
        best(select(adapter, { kind: 'ours', mtu: 9000 }), gbps),
        best(select(adapter, { kind: 'bare', mtu: 9000 }), gbps),
      ),
      line(
        'latency: 64 bytes there and back, wasm-roce polling',
        medianUs,
        'µs',
        best(select(latency, { ...ours, waiting: 'spin' }), medianUs, 'lowest'),
        select(latency, { contender: 'Node net' })[0],
      ),
      line(
        'message rate: SEND of 64 bytes',
        million,
        'million/s',
        best(select(rate, { ...ours, size: 64 }), million),
        select(rate, { contender: 'Node dgram', size: 64 })[0],
      ),
    ],
  };
}
