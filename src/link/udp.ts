/**
 * The `udp` link: a UDP socket on port 4791 for each local address. It needs no privilege. The link removes the headers
 * of sent frames and writes headers for received datagrams. `features` says which header fields a socket cannot see.
 */

import { ipBytes, isLinkLocal } from '../base/address.js';
import { type NativeUdpSockets, native } from '../native.js';
import { errnoError } from './errno.js';
import { ETHERNET_BYTES, ROCE_PORT } from './headers.js';
import { icrcFeatures } from './icrcoffload.js';
import { chooseInterface, type HostInterface, withBindableAddresses } from './interfaces.js';
import type { LinkFeatures, Resolved } from './link.js';
import { resolveRoute } from './resolve.js';
import { DEFAULT_BUFFER_BYTES, SocketLink } from './sockets.js';

/** Options of `UdpLink.open`. */
export interface UdpLinkOptions {
  /** Name of the interface. Default: the interface that has the first of `addresses`. */
  readonly interface?: string;
  /** Local addresses that the card uses. Default: all of the interface. */
  readonly addresses?: readonly string[];
  /**
   * Bytes of the receive buffer and of the send buffer of each socket. Default: 8 MiB. Without CAP_NET_ADMIN the
   * system's limits apply (net.core.rmem_max, net.core.wmem_max).
   */
  readonly bufferBytes?: number;
}

/** A link by UDP sockets. */
export class UdpLink extends SocketLink {
  readonly kind = 'udp';
  readonly #sockets: NativeUdpSockets;
  readonly #bufferBytes: number;
  readonly #supportsGso: boolean;

  /**
   * Opens a socket for each address.
   * @throws VerbsError EADDRINUSE if rxe or another card has the port; ENODEV, EADDRNOTAVAIL; EOPNOTSUPP without the
   * addon
   */
  static open(options: UdpLinkOptions): UdpLink {
    const only = (options.addresses?.length ?? 0) > 0;
    const iface = chooseInterface(options);
    return new UdpLink(only ? iface : withBindableAddresses(iface), options.bufferBytes ?? DEFAULT_BUFFER_BYTES, only);
  }

  private constructor(iface: HostInterface, bufferBytes: number, only: boolean) {
    const sockets = new (native().UdpSockets)();
    for (const address of iface.addresses) {
      const bytes = ipBytes(address);
      const result = sockets.add(bytes, ROCE_PORT, isLinkLocal(bytes) ? iface.index : 0, bufferBytes, iface.index);
      if (result === 0) continue;
      sockets.close();
      throw errnoError(result, `UDP port ${ROCE_PORT} of ${address} cannot be opened`, {
        EADDRINUSE:
          `UDP port ${ROCE_PORT} of ${address} is taken by an rxe device of this host or by another program: use ` +
          'another local address, or run as root, or with the capability CAP_NET_RAW, by which programs share addresses',
        EADDRNOTAVAIL: `${address} is no longer an address of this host`,
        EPERM: `opening UDP port ${ROCE_PORT} of ${address} is forbidden`,
      });
    }
    super(iface, sockets, sockets.fds(), only);
    this.#sockets = sockets;
    this.#bufferBytes = bufferBytes;
    this.#supportsGso = sockets.supportsGso();
  }

  get features(): LinkFeatures {
    return {
      maxFrame: this.interface.mtu + ETHERNET_BYTES,
      ipHeaderVisible: false,
      sourcePort: ROCE_PORT,
      ipIdentification: 'zero',
      ...icrcFeatures(),
      ...(this.#supportsGso && this.gsoFeatures),
    };
  }

  protected async lookUp(destination: string, source: string): Promise<Resolved> {
    return resolveRoute(this.interface, destination, source);
  }

  /** A tentative address can be bound later. */
  protected override usable(iface: HostInterface): HostInterface {
    return withBindableAddresses(iface);
  }

  protected override lastFrameSocket(source: string): number {
    return this.#sockets.fdOf(ipBytes(source));
  }

  /** @throws VerbsError EADDRINUSE if rxe has the port */
  joinGroup(group: string): void {
    const { index } = this.interface;
    const fd = this.#sockets.joinGroup(ipBytes(group), ROCE_PORT, index, this.#bufferBytes, index);
    if (fd < 0)
      throw this.cannotJoin(fd, group, {
        EADDRINUSE: `UDP port ${ROCE_PORT} of ${group} is taken, probably by an rxe device of this host`,
      });
    this.watch(fd);
  }

  leaveGroup(group: string): void {
    this.#sockets.leaveGroup(ipBytes(group));
  }

  /** If another program has the address's port, frames from that address are counted as `tx_invalid`. */
  protected addAddress(_address: string, bytes: Uint8Array): void {
    const { index } = this.interface;
    const result = this.#sockets.add(bytes, ROCE_PORT, isLinkLocal(bytes) ? index : 0, this.#bufferBytes, index);
    if (result === 0) this.watch(this.#sockets.fds().at(-1) as number);
  }

  protected removeAddress(_address: string, bytes: Uint8Array): void {
    this.#sockets.remove(bytes);
  }
}
