/** The report of a connection: a line of text, or a JSON object. */
import type { Counters, Device } from '../../index.js';
import { faultsIn } from '../counters.js';
import { errorReport } from '../exit.js';
import type { Channel } from './channels.js';
import { byteCounts, bytesText, type Meter } from './meter.js';

export interface Report {
  readonly ok: boolean;
  readonly role: 'listen' | 'connect';
  readonly link: string;
  readonly interface: string;
  readonly peer: { readonly address: string; readonly port: number };
  /** Bytes of the stream in each direction. */
  readonly sent: number;
  readonly received: number;
  readonly seconds: number;
  readonly bytesPerSecond: number;
  /** Packets that this end has retransmitted. */
  readonly retransmits: number;
  /** Faults of each kind that the local link has injected since the device was opened. */
  readonly faults: Counters;
  readonly error?: ReturnType<typeof errorReport>;
}

export interface ReportInput {
  readonly role: Report['role'];
  readonly device: Device;
  readonly channel: Channel;
  readonly meter: Meter;
  /** The device's counters when the connection began. */
  readonly before: Counters;
  readonly error: unknown;
}

export function reportOf({ role, device, channel, meter, before, error }: ReportInput): Report {
  const { sent, received, seconds } = meter;
  const counters = device.counters();
  return {
    ok: error === undefined,
    role,
    link: device.query().link.kind,
    interface: device.queryPort().interface,
    peer: { address: channel.remoteAddress, port: channel.remotePort },
    sent,
    received,
    seconds,
    bytesPerSecond: seconds > 0 ? (sent + received) / seconds : 0,
    retransmits: (counters.retransmits ?? 0) - (before.retransmits ?? 0),
    faults: faultsIn(counters),
    ...(error !== undefined && { error: errorReport(error) }),
  };
}

export function summary({ sent, received, seconds, bytesPerSecond }: Report): string {
  return `${byteCounts(sent, received)} in ${seconds.toFixed(1)} s, ${bytesText(bytesPerSecond)}/s`;
}
