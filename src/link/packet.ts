/**
 * The `packet` link: a packet socket on one interface (packet(7)). Headers are the card's own to the last bit, and it
 * works on any Ethernet interface; it needs CAP_NET_RAW. ARP, neighbour discovery and ICMP stay the kernel's.
 */
import { VerbsError } from '../errors.js';
import { type NativePacketSocket, native } from '../native.js';
import { ipBytes, isLinkLocal, multicastMac } from './address.js';
import { refusal } from './errno.js';
import { ETHERNET_BYTES } from './hostlink.js';
import { chooseInterface, type HostInterface } from './interfaces.js';
import type { LinkCounters, LinkFeatures, Resolved } from './link.js';
import { resolveNeighbour } from './resolve.js';
import { DEFAULT_BUFFER_BYTES, ROCE_PORT, SocketLink } from './sockets.js';

export interface PacketLinkOptions {
  /** Name of the interface; by default the one that has the first of `addresses`. */
  readonly interface?: string;
  /** Local addresses that the card uses; by default all of the interface. */
  readonly addresses?: readonly string[];
  /** Bytes of the socket's receive and send buffers. */
  readonly bufferBytes?: number;
  /** How long a neighbour may take to answer ARP or neighbour discovery. */
  readonly neighbourTimeoutMs?: number;
}

export class PacketLink extends SocketLink {
  readonly kind = 'packet';
  readonly #socket: NativePacketSocket;
  /** Addresses whose port somebody else has: rxe for instance, who keeps the kernel from answering by ICMP as well. */
  readonly #notHeld = new Set<string>();
  readonly #neighbourTimeoutMs: number | undefined;

  /**
   * @throws VerbsError EPERM without CAP_NET_RAW, ENODEV and EADDRNOTAVAIL with what there is instead, EOPNOTSUPP
   * without the addon
   */
  static open(options: PacketLinkOptions): PacketLink {
    const end = chooseInterface(options);
    if (!end.isEthernet) throw new VerbsError('ENODEV', `${end.name} does not carry Ethernet frames`);
    return new PacketLink(end, options, (options.addresses?.length ?? 0) > 0);
  }

  private constructor(
    end: HostInterface,
    { bufferBytes = DEFAULT_BUFFER_BYTES, neighbourTimeoutMs }: PacketLinkOptions,
    only: boolean,
  ) {
    const socket = new (native().PacketSocket)();
    const refused = socket.open(end.index, end.mac, bufferBytes);
    if (refused < 0)
      throw refusal(refused, `no packet socket on ${end.name}`, {
        EPERM:
          `a packet socket on ${end.name} needs the capability CAP_NET_RAW: run as root, ` +
          `or give it to node (setcap cap_net_raw+ep ${process.execPath}), or take the udp link, which needs none`,
        ENODEV: `${end.name} has just gone away`,
      });
    super(end, socket, [socket.fd()], only);
    this.#socket = socket;
    for (const address of end.addresses) this.addAddress(address, ipBytes(address));
    this.#neighbourTimeoutMs = neighbourTimeoutMs;
  }

  get features(): LinkFeatures {
    return {
      maxFrame: this.interface.mtu + ETHERNET_BYTES,
      ipHeaderVisible: true,
      sourcePort: 0,
      ipIdentification: 'as written',
      ...this.offload,
      ...this.together,
    };
  }

  override get notes(): readonly string[] {
    const notHeld = [...this.#notHeld];
    return [
      ...super.notes,
      ...notHeld.map((address) => `UDP port ${ROCE_PORT} of ${address} is open in another program or in rxe`),
    ];
  }

  /** `port_not_held`: addresses at which another program, or the kernel, takes datagrams to the port of RoCE. */
  override counters(): LinkCounters {
    return { ...super.counters(), port_not_held: this.#notHeld.size };
  }

  resolve(destination: string, source: string): Promise<Resolved> {
    return resolveNeighbour(this.interface, destination, source, this.closing, this.#neighbourTimeoutMs);
  }

  joinGroup(group: string): void {
    const bytes = ipBytes(group);
    const refused = this.#socket.joinGroup(bytes, multicastMac(bytes), this.interface.index);
    if (refused < 0) throw this.cannotJoin(refused, group);
  }

  leaveGroup(group: string): void {
    const bytes = ipBytes(group);
    this.#socket.leaveGroup(bytes, multicastMac(bytes), this.interface.index);
  }

  protected addAddress(address: string, bytes: Uint8Array): void {
    const scope = isLinkLocal(bytes) ? this.interface.index : 0;
    if (this.#socket.holdPort(bytes, ROCE_PORT, scope) !== 0) this.#notHeld.add(address);
  }

  protected removeAddress(address: string, bytes: Uint8Array): void {
    if (!this.#notHeld.delete(address)) this.#socket.releasePort(bytes);
  }
}
