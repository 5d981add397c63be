/**
 * The `udp` link: a UDP socket on port 4791 for each local address. It needs no privilege. The link removes the headers
 * of sent frames and writes headers for received datagrams. `features` says which header fields a socket cannot see.
 * The sockets are the link's own, or the broker has lent them, and other programs have others of the same addresses.
 */

import { ipBytes, isLinkLocal } from '../base/address.js';
import { type NativeUdpSockets, native } from '../native.js';
import { BrokerClient } from './broker/client.js';
import type { HostAddress } from './broker/protocol.js';
import { errnoError } from './errno.js';
import { ETHERNET_BYTES, ROCE_PORT } from './headers.js';
import { icrcFeatures } from './icrcoffload.js';
import { chooseInterface, type HostInterface, withBindableAddresses } from './interfaces.js';
import type { Link, LinkFeatures, Resolved, SharedPort } from './link.js';
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
  readonly sharedPort: SharedPort | undefined;
  readonly #sockets: NativeUdpSockets;
  readonly #bufferBytes: number;
  readonly #supportsGso: boolean;
  readonly #broker: BrokerClient | undefined;
  /** Sockets that the broker has been asked for, by address. */
  readonly #requested = new Map<string, Promise<void>>();
  /** By local address and program of the peer. They stay when the address goes: it may come back to the same peers. */
  readonly #sourcePorts = new Map<string, number>();

  /**
   * Opens a socket of its own for each address.
   * @throws VerbsError EADDRINUSE if rxe, the broker or another card has the port; ENODEV, EADDRNOTAVAIL; EOPNOTSUPP
   * without the addon
   */
  static open(options: UdpLinkOptions): UdpLink {
    const plan = planOf(options);
    const sockets = new (native().UdpSockets)();
    for (const address of plan.iface.addresses) {
      const { bytes, scope } = boundTo(address, plan.iface);
      const result = sockets.add(bytes, ROCE_PORT, scope, plan.bufferBytes, plan.iface.index);
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
    return new UdpLink(plan, sockets);
  }

  /**
   * Opens a link that shares the port of its addresses with other programs of this host: the broker lends a socket for
   * each address.
   * @throws VerbsError as `BrokerClient.join`; EADDRINUSE if rxe or a program without the broker has the port; ENODEV,
   * EADDRNOTAVAIL
   */
  static async openShared(options: UdpLinkOptions): Promise<UdpLink> {
    const plan = planOf(options);
    const { iface } = plan;
    const broker = await BrokerClient.join(iface.addresses.map((address) => hostAddress(address, iface)));
    const sockets = new (native().UdpSockets)();
    try {
      for (const address of iface.addresses) await adoptSocket(broker, sockets, address, plan);
      return new UdpLink(plan, sockets, broker);
    } catch (error) {
      sockets.close();
      broker.close();
      throw error;
    }
  }

  private constructor({ iface, bufferBytes, only }: Plan, sockets: NativeUdpSockets, broker?: BrokerClient) {
    super(iface, sockets, sockets.fds(), only);
    this.#sockets = sockets;
    this.#bufferBytes = bufferBytes;
    this.#supportsGso = sockets.supportsGso();
    this.#broker = broker;
    this.sharedPort = broker && {
      slot: broker.slot,
      onLost: () => {},
      handleMads: () => broker.handleMads(),
      listen: async (id, address) => {
        await this.#requested.get(address);
        return broker.listen({ id, ...hostAddress(address, this.interface) });
      },
    };
    if (broker) broker.onLost = ({ message }) => this.#lose(message);
  }

  #lose(reason: string): void {
    this.close();
    this.sharedPort?.onLost(reason);
  }

  get sourcePortTo(): Link['sourcePortTo'] {
    return this.#broker && ((source, program) => this.#sourcePortTo(source, program));
  }

  override close(): void {
    super.close();
    // after the sockets: the broker lends them to others
    this.#broker?.close();
  }

  get features(): LinkFeatures {
    return {
      maxFrame: this.interface.mtu + ETHERNET_BYTES,
      ipHeaderVisible: false,
      sourcePort: this.sharedPort ? 0 : ROCE_PORT,
      ipIdentification: 'zero',
      ...icrcFeatures(),
      ...(this.#supportsGso && this.gsoFeatures),
      ...(this.sharedPort && { flowSteering: { mask: 0xff0000, value: this.sharedPort.slot << 16 } }),
    };
  }

  #sourcePortTo(source: string, program: number | 'any'): number {
    if (program === 0) return ROCE_PORT;
    const key = `${source} ${program}`;
    const known = this.#sourcePorts.get(key);
    if (known !== undefined) return known;
    const { bytes, scope } = boundTo(source, this.interface);
    const port = this.#sockets.addSender(bytes, 0, scope, this.#bufferBytes, program !== 'any');
    // without a socket GRO may join packets for two programs, which costs retransmissions
    if (port < 0) return ROCE_PORT;
    this.#sourcePorts.set(key, port);
    return port;
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
  protected addAddress(address: string, bytes: Uint8Array): void {
    const plan = { iface: this.interface, bufferBytes: this.#bufferBytes };
    const watch = (): void => this.watch(this.#sockets.fds().at(-1) as number);
    if (this.#broker !== undefined) {
      const isWanted = () => !this.closing.aborted && this.interface.addresses.includes(address);
      const requested = adoptSocket(this.#broker, this.#sockets, address, plan, isWanted).then(
        (isAdopted) => {
          if (isAdopted) watch();
        },
        () => {},
      );
      this.#requested.set(address, requested);
      return;
    }
    const { scope } = boundTo(address, plan.iface);
    const result = this.#sockets.add(bytes, ROCE_PORT, scope, this.#bufferBytes, plan.iface.index);
    if (result === 0) watch();
  }

  protected removeAddress(address: string, bytes: Uint8Array): void {
    this.#sockets.remove(bytes);
    this.#requested.delete(address);
    this.#broker?.release(hostAddress(address, this.interface));
  }
}

function planOf(options: UdpLinkOptions): Plan {
  const only = (options.addresses?.length ?? 0) > 0;
  const iface = chooseInterface(options);
  const { bufferBytes = DEFAULT_BUFFER_BYTES } = options;
  return { iface: only ? iface : withBindableAddresses(iface), bufferBytes, only };
}

/** Returns what a socket for an address is bound to. */
function boundTo(address: string, iface: HostInterface): { readonly bytes: Uint8Array; readonly scope: number } {
  const bytes = ipBytes(address);
  return { bytes, scope: isLinkLocal(bytes) ? iface.index : 0 };
}

function hostAddress(address: string, iface: HostInterface): HostAddress {
  return { address, scope: boundTo(address, iface).scope, ifindex: iface.index };
}

/**
 * Gives a link the broker's socket for an address.
 * @param isWanted says whether the link still has the address when the broker has replied
 * @returns whether the link has the socket
 */
async function adoptSocket(
  broker: BrokerClient,
  sockets: NativeUdpSockets,
  address: string,
  { iface, bufferBytes }: Pick<Plan, 'iface' | 'bufferBytes'>,
  isWanted: () => boolean = () => true,
): Promise<boolean> {
  const at = hostAddress(address, iface);
  const fd = await broker.socketOf(at);
  const { bytes, scope } = boundTo(address, iface);
  const result = isWanted() ? sockets.adopt(fd, bytes, ROCE_PORT, scope, bufferBytes) : undefined;
  native().closeFd(fd);
  if (result === undefined) broker.release(at);
  else if (result < 0) throw errnoError(result, `the socket of ${address} cannot be used`, {});
  return result === 0;
}
