/**
 * The UDP sockets of a link that takes frames from an interface itself, and shares its addresses with other programs of
 * this host. No interface carries packets between addresses of one host, so these sockets do: frames to the MAC address
 * zero leave by them. They also bring requests of the CM, because the kernel gives each of them to one program.
 */
import { ipBytes } from '../../base/address.js';
import { type NativeUdpSockets, native } from '../../native.js';
import type { LinkCounters, SourcePath } from '../link.js';
import { SharedSockets, type SharedSocketsOptions } from './sharedsockets.js';

/** Counters of the UDP sockets that are not added to those of the link. */
const NOT_ADDED: readonly string[] = ['rx_buffer_bytes', 'rx_last_errno', 'tx_last_errno'];
const MAC_BYTES = 6;

const isZero = (mac: Uint8Array) => mac.every((byte) => byte === 0);

/** See the head of this file. */
export class LocalSockets {
  private constructor(
    readonly sockets: NativeUdpSockets,
    readonly shared: SharedSockets,
  ) {}

  /** @throws VerbsError as `SharedSockets.open` */
  static async open(options: SharedSocketsOptions): Promise<LocalSockets> {
    const sockets = new (native().UdpSockets)();
    return new LocalSockets(sockets, await SharedSockets.open(sockets, options));
  }

  /** As `Link.sourcePortTo`: 0 for packets that leave by the interface. */
  readonly sourcePortTo = ({ source, destMac }: SourcePath, program: number | 'any'): number =>
    isZero(destMac) ? this.shared.sourcePortTo(source, program) : 0;

  /** Returns the socket that sends a frame from an address; undefined if it leaves by the interface. */
  socketFor(source: string, frame: Uint8Array): number | undefined {
    return isZero(frame.subarray(0, MAC_BYTES)) ? this.sockets.fdOf(ipBytes(source)) : undefined;
  }

  /** Adds the counts of the sockets to those of the link. */
  addTo(counters: LinkCounters): LinkCounters {
    const sums: Record<string, number> = { ...counters };
    for (const [name, value] of Object.entries(this.sockets.counters()))
      if (!NOT_ADDED.includes(name)) sums[name] = (sums[name] ?? 0) + value;
    return sums;
  }
}
