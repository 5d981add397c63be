/** The report of a pingpong: the lines of the stock program, or a JSON object. */
import type { Counters, Device, Endpoint } from '../../index.js';
import { faultsIn, nonZero } from '../counters.js';
import { hex, qpnText } from '../hex.js';
import { type Latency, latencyOf } from '../latency.js';
import type { Output } from '../output.js';
import type { PingpongParameters, PingpongResult } from './context.js';
import type { Transport } from './transport.js';

export interface Report {
  readonly ok: boolean;
  readonly role: 'client' | 'server';
  readonly link: string;
  readonly interface: string;
  readonly transport: Transport;
  /** The first queue pair. */
  readonly local: Endpoint;
  readonly remote: Endpoint;
  readonly queuePairs: number;
  /** Bytes of a message, and messages that each end sent. */
  readonly size: number;
  readonly iters: number;
  readonly mtu: number;
  /** Payload in both directions. */
  readonly bytes: number;
  readonly seconds: number;
  readonly mbitPerSecond: number;
  readonly usecPerIter: number;
  /** Times of the round trips, microseconds; null at the server, which does not measure them. */
  readonly latency: Latency | null;
  /** Messages that were verified, and how many of them held wrong bytes. */
  readonly checked: number;
  readonly invalid: number;
  readonly retransmits: number;
  /** Last messages without an acknowledgement, because the peer had received everything and left. */
  readonly unacknowledged: number;
  /** Faults of each kind that the local link has injected. */
  readonly faults: Counters;
  readonly counters: { readonly qp: Counters; readonly device: Counters };
  readonly notes: readonly string[];
}

export interface ReportInput {
  readonly role: Report['role'];
  readonly device: Device;
  readonly local: readonly Endpoint[];
  readonly remote: readonly Endpoint[];
  readonly options: PingpongParameters;
  readonly result: PingpongResult;
}

export function reportOf({ role, device, local, remote, options, result }: ReportInput): Report {
  const { transport, size, iters, check } = options;
  const { seconds, times, received, invalid, unacknowledged, counters } = result;
  const mtu = transport === 'UD' ? device.queryPort().activeMtu : options.mtu;
  const bytes = 2 * size * iters;
  const all = device.counters();
  return {
    ok: invalid === 0,
    role,
    link: device.query().link.kind,
    interface: device.queryPort().interface,
    transport,
    local: local[0] as Endpoint,
    remote: remote[0] as Endpoint,
    queuePairs: local.length,
    size,
    iters,
    mtu,
    bytes,
    seconds,
    mbitPerSecond: seconds > 0 ? (bytes * 8) / seconds / 1e6 : 0,
    usecPerIter: iters > 0 ? (seconds * 1e6) / iters : 0,
    latency: times.length > 0 ? latencyOf(times) : null,
    checked: check ? received : 0,
    invalid,
    retransmits: counters.retransmits ?? 0,
    unacknowledged,
    faults: faultsIn(all),
    counters: { qp: nonZero(counters), device: nonZero(all) },
    notes: device.notes,
  };
}

export function printDestinations(whose: 'local' | 'remote', endpoints: readonly Endpoint[], output: Output): void {
  for (const { qpNum, psn, gid } of endpoints)
    output.line(
      `${`  ${whose} address:`.padEnd(18)}LID 0x0000, QPN ${qpnText(qpNum)}, PSN 0x${hex(psn, 6)}, GID ${gid}`,
    );
}

export function printReport(report: Report, output: Output): void {
  const { bytes, seconds, mbitPerSecond, iters, usecPerIter, latency, checked, invalid, retransmits, faults } = report;
  output.result(report);
  output.line(`${bytes} bytes in ${seconds.toFixed(2)} seconds = ${mbitPerSecond.toFixed(2)} Mbit/sec`);
  output.line(`${iters} iters in ${seconds.toFixed(2)} seconds = ${usecPerIter.toFixed(2)} usec/iter`);
  if (latency)
    output.line(
      `round trip usec: min ${latency.min}, median ${latency.median}, 90% ${latency.p90}, 99% ${latency.p99}, 99.9% ${latency.p999}, max ${latency.max}`,
    );
  const met = Object.entries(faults).map(([name, count]) => `${name} ${count}`);
  output.line(`link ${report.link} on ${report.interface}, ${retransmits} packets retransmitted`);
  if (met.length > 0) output.line(`faults injected: ${met.join(', ')}`);
  if (report.unacknowledged > 0)
    output.line(
      `${report.unacknowledged} last messages without acknowledgement: the peer left after all its messages had come`,
    );
  if (checked > 0)
    output.line(`${checked} messages checked, ${invalid === 0 ? 'every byte right' : `${invalid} WRONG`}`);
}
