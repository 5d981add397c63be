/** State, addresses and all counters of a device as plain data, for monitoring. */
import { isMessage } from '../../base/message.js';
import type { Counters } from './counters.js';

/** Most characters of a command. */
const MAX_COMMAND = 200;

/** Returns the command line of this process, without the path of Node. */
export const command = (): string => process.argv.slice(1).join(' ').slice(0, MAX_COMMAND);

/** State, addresses and counters of a device and of its queue pairs, from `device.stat()`. */
export interface DeviceStat {
  /** As `device.query().name`, e.g. `wasm-eth0`. */
  readonly device: string;
  /** Command line of its process, without the path of Node; at most 200 characters. */
  readonly command: string;
  /** Name of the interface, e.g. `eth0`. */
  readonly interface: string;
  /** Kind of the link: `packet`, `udp`, `xdp`, `memory` ... */
  readonly link: string;
  /**
   * Bits 16 to 23 of the numbers of its queue pairs, 1 to 255, if it shares its addresses through the broker. Devices
   * of an address have different ones.
   */
  readonly slot?: number;
  /** State of the port. */
  readonly state: 'ACTIVE' | 'DOWN';
  /** IP addresses of the GID table, in its order. */
  readonly addresses: readonly string[];
  /** Counters of the card, and those of the link as `link.<name>`; see `device.counters()`. */
  readonly counters: Counters;
  /** Queue pairs of the device. */
  readonly qps: readonly QpStat[];
}

/** State and counters of a queue pair. */
export interface QpStat {
  /** Queue pair number, 24 bits. */
  readonly qpNum: number;
  /** `RC`, `UC` or `UD`. */
  readonly type: string;
  /** Present state, e.g. `RTS`. */
  readonly state: string;
  /** IP address and queue pair number of the peer of a connected queue pair. */
  readonly peer?: { readonly address: string; readonly qpNum: number };
  /** Counters of the queue pair. */
  readonly counters: Counters;
}

/** Whether a program, perhaps a hostile one, has replied with the state of a device. */
export function isDeviceStat(value: unknown): value is DeviceStat {
  if (!isMessage(value) || !Array.isArray(value.addresses) || !Array.isArray(value.qps)) return false;
  const texts = ['device', 'command', 'interface', 'link', 'state'].map((name) => value[name]);
  return (
    [...texts, ...value.addresses].every((each) => typeof each === 'string') &&
    areCounters(value.counters) &&
    value.qps.every(isQpStat)
  );
}

const areCounters = (value: unknown): boolean =>
  isMessage(value) && Object.values(value).every((count) => typeof count === 'number');

function isQpStat(value: unknown): boolean {
  if (!isMessage(value) || !areCounters(value.counters)) return false;
  const { qpNum, type, state, peer } = value;
  const isPeer = (end: unknown) => isMessage(end) && typeof end.address === 'string' && typeof end.qpNum === 'number';
  const hasFields = typeof qpNum === 'number' && typeof type === 'string' && typeof state === 'string';
  return hasFields && (peer === undefined || isPeer(peer));
}
