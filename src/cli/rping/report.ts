/** The report of an rping connection: lines of text, or a JSON object. */
import type { Counters, Device } from '../../index.js';
import { faultsIn, nonZero } from '../counters.js';
import { type Latency, latencyOf } from '../latency.js';
import { type Output, sizeText } from '../output.js';
import type { PingResult } from './client.js';
import type { ServeResult } from './server.js';

export interface RpingReport {
  readonly ok: boolean;
  readonly role: 'client' | 'server';
  readonly link: string;
  readonly interface: string;
  /** Address and port of the other end. */
  readonly peer: { readonly address: string; readonly port: number };
  readonly pings: number;
  /** Bytes of all pings, in one direction. */
  readonly bytes: number;
  readonly seconds: number;
  /** Round-trip times, microseconds; null at the server, which does not measure them. */
  readonly latency: Latency | null;
  /** With `-V`: pings that were verified, and how many of them held wrong bytes. */
  readonly checked: number;
  readonly invalid: number;
  /** Packets that the device has retransmitted since it was opened. */
  readonly retransmits: number;
  /** Faults of each kind that the local link has injected. */
  readonly faults: Counters;
  readonly counters: Counters;
  readonly notes: readonly string[];
}

export interface ReportInput {
  readonly role: RpingReport['role'];
  readonly device: Device;
  readonly peer: RpingReport['peer'];
  readonly validate: boolean;
  readonly result: ServeResult | PingResult;
}

export function reportOf({ role, device, peer, validate, result }: ReportInput): RpingReport {
  const { pings, bytes, seconds, invalid } = result;
  const counters = nonZero(device.counters());
  const times = 'times' in result ? result.times : [];
  return {
    ok: invalid === 0,
    role,
    link: device.query().link.kind,
    interface: device.queryPort().interface,
    peer,
    pings,
    bytes,
    seconds,
    latency: times.length > 0 ? latencyOf(Float64Array.from(times)) : null,
    checked: validate ? pings : 0,
    invalid,
    retransmits: counters.retransmits ?? 0,
    faults: faultsIn(counters),
    counters,
    notes: device.notes,
  };
}

export function printReport(report: RpingReport, output: Output): void {
  const { role, peer, pings, bytes, seconds, latency, checked, invalid, retransmits, faults, link } = report;
  output.result(report);
  const size = pings > 0 ? ` of ${sizeText(bytes / pings)}` : '';
  const from = role === 'server' ? ` from ${peer.address}` : '';
  output.line(`${pings} pings${size}${from} in ${seconds.toFixed(2)} seconds`);
  if (latency)
    output.line(`usec: min ${latency.min}, median ${latency.median}, 99% ${latency.p99}, max ${latency.max}`);
  const met = Object.entries(faults).map(([name, count]) => `, ${name} ${count}`);
  if (retransmits > 0 || met.length > 0)
    output.line(`link ${link}: ${retransmits} packets retransmitted${met.join('')}`);
  if (checked > 0) output.line(`${checked} pings checked, ${invalid === 0 ? 'every byte right' : `${invalid} WRONG`}`);
}
