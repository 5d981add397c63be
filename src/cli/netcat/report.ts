/** What became of a connection: a line for people, or an object. */
import type { Connection, Counters, Device } from '../../index.js';
import { errorReport } from '../exit.js';
import { amount, type Meter, told } from './meter.js';

export interface Report {
  readonly ok: boolean;
  readonly role: 'listen' | 'connect';
  readonly link: string;
  readonly interface: string;
  readonly peer: { readonly address: string; readonly port: number };
  /** Bytes of the stream. */
  readonly sent: number;
  readonly received: number;
  readonly seconds: number;
  readonly bytesPerSecond: number;
  /** Packets of this end that went again. */
  readonly retransmits: number;
  /** Frames that met each fate on our own link, by the options, since the device was opened. */
  readonly faults: Counters;
  readonly error?: ReturnType<typeof errorReport>;
}

export interface Facts {
  readonly role: Report['role'];
  readonly device: Device;
  readonly connection: Connection;
  readonly meter: Meter;
  /** The device's counters when the connection began. */
  readonly before: Counters;
  readonly error: unknown;
}

export function reportOf({ role, device, connection, meter, before, error }: Facts): Report {
  const { sent, received, seconds } = meter;
  const counters = device.counters();
  const fault = /^link\.fault_/;
  const faults = Object.entries(counters).filter(([name, count]) => fault.test(name) && count > 0);
  return {
    ok: error === undefined,
    role,
    link: device.query().link.kind,
    interface: device.queryPort().interface,
    peer: { address: connection.remoteAddress ?? '', port: connection.remotePort ?? 0 },
    sent,
    received,
    seconds,
    bytesPerSecond: seconds > 0 ? (sent + received) / seconds : 0,
    retransmits: (counters.retransmits ?? 0) - (before.retransmits ?? 0),
    faults: Object.fromEntries(faults.map(([name, count]) => [name.replace(fault, ''), count])),
    ...(error !== undefined && { error: errorReport(error) }),
  };
}

export function summary({ sent, received, seconds, bytesPerSecond }: Report): string {
  return `${told(sent, received)} in ${seconds.toFixed(1)} s, ${amount(bytesPerSecond)}/s`;
}
