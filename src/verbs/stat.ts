/** What a device tells of itself to those who watch: state, addresses and all counters, as plain data for JSON. */
import type { Device } from './context.js';
import type { Counters } from './counters.js';

/** Counters of a device and of its queue pairs at one moment. */
export interface DeviceStat {
  /** As `device.query().name`, e.g. `wasm-eth0`. */
  readonly device: string;
  readonly interface: string;
  /** `packet`, `udp`, `memory` ... */
  readonly link: string;
  readonly state: 'ACTIVE' | 'DOWN';
  /** Addresses of the GID table, in its order. */
  readonly addresses: readonly string[];
  /** Of the card, under Linux' names, and of the link as `link.<name>`. */
  readonly counters: Counters;
  readonly qps: readonly QpStat[];
}

export interface QpStat {
  readonly qpNum: number;
  /** `RC`, `UC` or `UD`. */
  readonly type: string;
  readonly state: string;
  /** Of a connected queue pair. */
  readonly peer?: { readonly address: string; readonly qpn: number };
  readonly counters: Counters;
}

/** @internal */
export function deviceStat(device: Device): DeviceStat {
  const { link, gids } = device;
  return {
    device: device.label,
    interface: link.interface.name,
    link: link.kind,
    state: device.queryPort().state,
    addresses: gids.map(({ address }) => address),
    counters: device.counters(),
    qps: device.qps().map((qp) => {
      const { peer } = qp.circumstances();
      return { qpNum: qp.qpNum, type: qp.type, state: qp.state, ...(peer && { peer }), counters: qp.counters() };
    }),
  };
}
