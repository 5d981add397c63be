/**
 * The `udp` link: a UDP socket on port 4791 for each local address. It needs no privilege. The link removes the headers
 * of sent frames and writes headers for received datagrams. `features` says which header fields a socket cannot see.
 * The sockets are the link's own, or the broker has lent them, and other programs have others of the same addresses.
 */

import { ipBytes } from '../base/address.js';
import { type NativeUdpSockets, native } from '../native.js';
import { hostAddress, SharedSockets } from './broker/sharedsockets.js';
import { errnoError } from './errno.js';
import { ETHERNET_BYTES, ROCE_PORT } from './headers.js';
import { icrcFeatures } from './icrcoffload.js';
import { chooseInterface, type HostInterface, withBindableAddresses } from './interfaces.js';
import type { Link, LinkFeatures, Resolved } from './link.js';
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

/** The interface of a link, and its options. */
interface Plan {
  readonly iface: HostInterface;
  readonly bufferBytes: number;
  readonly only: boolean;
}

/** A link by UDP sockets. */
export class UdpLink extends SocketLink {
  readonly kind = 'udp';
  readonly #sockets: NativeUdpSockets;
  readonly #bufferBytes: number;
  readonly #supportsGso: boolean;
  readonly #shared: SharedSockets | undefined;

  /**
   * Opens a socket of its own for each address.
   * @throws VerbsError EADDRINUSE if rxe, the broker or another card has the port; ENODEV, EADDRNOTAVAIL; EOPNOTSUPP
   * without the addon
   */
  static open(options: UdpLinkOptions): UdpLink {
    const plan = planOf(options);
    const sockets = new (native().UdpSockets)();
    for (const address of plan.iface.addresses) {
      const result = addSocket(sockets, address, plan);
      if (result === 0) continue;
      sockets.close();
      throw errnoError(result, `UDP port ${ROCE_PORT} of ${address} cannot be opened`, {
        EADDRINUSE:
          `UDP port ${ROCE_PORT} of ${address} is taken by an rxe device of this host or by another program: ` +
          'use another local address, or let both programs share it (openDevice without broker: false, and without WASM_ROCE_BROKER=off)',
        EADDRNOTAVAIL: `${address} is no longer an address of this host`,
        EPERM: `opening UDP port ${ROCE_PORT} of ${address} is forbidden`,
      });
    }
    return new UdpLink(plan, sockets);
  }

  /**
   * Opens a link that shares the port of its addresses with other programs of this host.
   * @throws VerbsError as `SharedSockets.open`; ENODEV
   */
  static async openShared(options: UdpLinkOptions): Promise<UdpLink> {
    const plan = planOf(options);
    const { iface, bufferBytes } = plan;
    const { index: ifindex, addresses } = iface;
    const sockets = new (native().UdpSockets)();
    const shared = await SharedSockets.open(sockets, { ifindex, addresses, bufferBytes, onlyLocal: false });
    return shared.closedUnless(() => new UdpLink(plan, sockets, shared));
  }

  private constructor({ iface, bufferBytes, only }: Plan, sockets: NativeUdpSockets, shared?: SharedSockets) {
    super(iface, sockets, sockets.fds(), only, shared);
    this.#sockets = sockets;
    this.#bufferBytes = bufferBytes;
    this.#supportsGso = sockets.supportsGso();
    this.#shared = shared;
  }

  get sourcePortTo(): Link['sourcePortTo'] {
    const shared = this.#shared;
    return shared && (({ source }, program) => shared.sourcePortTo(source, program));
  }

  protected readFeatures(): LinkFeatures {
    return {
      maxFrame: this.interface.mtu + ETHERNET_BYTES,
      ipHeaderVisible: false,
      sourcePort: this.sharedPort ? 0 : ROCE_PORT,
      ipIdentification: 'zero',
      ...icrcFeatures(),
      ...(this.#supportsGso && this.gsoFeatures),
      ...this.#shared?.features,
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
  protected addAddress(address: string): void {
    if (this.#shared) {
      this.addShared(address);
      return;
    }
    const plan = { iface: this.interface, bufferBytes: this.#bufferBytes };
    if (addSocket(this.#sockets, address, plan) === 0) this.watch(this.#sockets.fds().at(-1) as number);
  }

  protected removeAddress(address: string, bytes: Uint8Array): void {
    if (this.#shared) this.#shared.remove(address);
    else this.#sockets.remove(bytes);
  }
}

function planOf(options: UdpLinkOptions): Plan {
  const only = (options.addresses?.length ?? 0) > 0;
  const iface = chooseInterface(options);
  const { bufferBytes = DEFAULT_BUFFER_BYTES } = options;
  return { iface: only ? iface : withBindableAddresses(iface), bufferBytes, only };
}

/** Opens a socket of the link's own. @returns 0 or -errno */
function addSocket(
  sockets: NativeUdpSockets,
  address: string,
  { iface, bufferBytes }: Pick<Plan, 'iface' | 'bufferBytes'>,
): number {
  const { scope } = hostAddress(address, iface.index);
  return sockets.add(ipBytes(address), ROCE_PORT, scope, bufferBytes, iface.index);
}
