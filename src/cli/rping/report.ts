/** What rping tells: lines for people, or one JSON object for each connection. */
import type { Counters, Device } from '../../index.js';
import { type Latency, latencyOf } from '../latency.js';
import { type Output, sizeText } from '../output.js';
import type { Pinged } from './client.js';
import type { Served } from './server.js';

export interface RpingReport {
  readonly ok: boolean;
  readonly role: 'client' | 'server';
  readonly link: string;
  readonly interface: string;
  /** Address and port of the other end. */
  readonly peer: { readonly address: string; readonly port: number };
  readonly pings: number;
  /** Of all pings, one way. */
  readonly bytes: number;
  readonly seconds: number;
  /** Of pings, microseconds; the server does not know them. */
  readonly latency: Latency | null;
  /** With `-V`: pings whose bytes were looked at, and those of them whose bytes were wrong. */
  readonly checked: number;
  readonly invalid: number;
  /** Of the device since it was opened. */
  readonly retransmits: number;
  /** Frames that met each fate on our own link, by the options. */
  readonly faults: Counters;
  readonly counters: Counters;
  readonly notes: readonly string[];
}

export interface Facts {
  readonly role: RpingReport['role'];
  readonly device: Device;
  readonly peer: RpingReport['peer'];
  readonly validate: boolean;
  readonly outcome: Served | Pinged;
}

export function reportOf({ role, device, peer, validate, outcome }: Facts): RpingReport {
  const { pings, bytes, seconds, invalid } = outcome;
  const counters = Object.fromEntries(Object.entries(device.counters()).filter(([, count]) => count > 0));
  const fault = /^link\.fault_/;
  const faults = Object.entries(counters).filter(([name]) => fault.test(name));
  const times = 'times' in outcome ? outcome.times : [];
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
    faults: Object.fromEntries(faults.map(([name, count]) => [name.replace(fault, ''), count])),
    counters,
    notes: device.notes,
  };
}

export function tell(report: RpingReport, output: Output): void {
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
