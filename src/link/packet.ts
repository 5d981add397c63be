/**
 * The `packet` link: a packet socket on one interface (packet(7)). The card writes and reads all headers itself. The
 * link works on every Ethernet interface and needs CAP_NET_RAW. The kernel still handles ARP, neighbour discovery and
 * ICMP.
 *
 * A link that shares its addresses with other programs also has UDP sockets (broker/localsockets.ts).
 */
import { randomInt } from 'node:crypto';
import { ipBytes, isLinkLocal, multicastMac } from '../base/address.js';
import { emitWarning } from '../base/warning.js';
import { invalidType, VerbsError } from '../errors.js';
import { type NativePacketSocket, native } from '../native.js';
import { LocalSockets } from './broker/localsockets.js';
import { hasBroker } from './broker/start.js';
import { errnoError, errnoName } from './errno.js';
import type { Frames } from './frames.js';
import { ETHERNET_BYTES, ROCE_PORT } from './headers.js';
import { icrcFeatures } from './icrcoffload.js';
import { chooseInterface, type HostInterface } from './interfaces.js';
import { bindFree, type CardRoom, type Link, type LinkCounters, type LinkFeatures, type Resolved } from './link.js';
import { resolveNeighbour } from './resolve.js';
import { frameLayout } from './ring.js';
import { COALESCED_BYTES, DEFAULT_BUFFER_BYTES, SocketLink } from './sockets.js';

/** Options of `PacketLink.open`. */
export interface PacketLinkOptions {
  /** Name of the interface. Default: the interface that has the first of `addresses`. */
  readonly interface?: string;
  /** Local addresses that the card uses. Default: all of the interface. */
  readonly addresses?: readonly string[];
  /**
   * Bytes of the socket's receive buffer and of its send buffer. Default: 8 MiB. Half of it is the size of the ring for
   * single frames: the kernel counts about twice the bytes of a frame in a buffer.
   */
  readonly bufferBytes?: number;
  /**
   * The kernel gives the link only packets to the queue pairs of its own card, as far as it can tell: to one of 16
   * shares of all queue pair numbers. Each link on the interface has another share. Default: false.
   */
  readonly flowSteering?: boolean;
  /** Time that a neighbour has to reply to ARP or neighbour discovery (ms). Default: 3000. */
  readonly neighbourTimeoutMs?: number;
}

/** The lowest 4 bits of a queue pair number say in which share it is. */
const SHARES = 16;
/** The ring has at most this part of the card's memory: 1/16. */
const RING_SHARE = 16;
/** The ring's size and its offset in the memory are multiples of this. kBlockBytes of native/core/packetring.cc. */
const RING_UNIT = 65536;
/** The longest IP packet of RoCE: path MTU 4096 and all headers. Interfaces may have a larger MTU. */
const LONGEST_PACKET = 4096 + 160;
/** The kernel's header of a frame in the ring, the Ethernet header and a tag. */
const RING_HEADERS = 128;

const CACHE_LINE = 64;

const roundDown = (value: number, unit: number) => Math.floor(value / unit) * unit;
const roundUp = (value: number, unit: number) => Math.ceil(value / unit) * unit;

/** The parts of a link. */
interface Plan extends PacketLinkOptions {
  readonly iface: HostInterface;
  readonly socket: NativePacketSocket;
  /** The UDP sockets of a link that shares its addresses. */
  readonly local?: LocalSockets;
}

/** A link by a packet socket. */
export class PacketLink extends SocketLink {
  readonly kind = 'packet';
  readonly #socket: NativePacketSocket;
  /**
   * Addresses whose RoCE port another program or rxe has bound. Whichever program binds the port, the kernel then does
   * not reply with ICMP "port unreachable".
   */
  readonly #unboundPorts = new Set<string>();
  readonly #neighbourTimeoutMs: number | undefined;
  readonly #bufferBytes: number;
  readonly #steering: Pick<LinkFeatures, 'flowSteering'>;
  readonly #local: Plan['local'];
  #releaseShare: (() => void) | undefined;
  #ring: { readonly bytes: number; readonly frameBytes: number } | undefined;

  /**
   * Opens the socket and binds the RoCE port of each address.
   * @throws VerbsError EPERM without CAP_NET_RAW; ENODEV and EADDRNOTAVAIL with the existing interfaces; EOPNOTSUPP
   * without the addon; EADDRINUSE if other links on the interface have all shares of the queue pair numbers
   */
  static open(options: PacketLinkOptions): PacketLink {
    const iface = ethernetInterface(options);
    return new PacketLink({ ...options, iface, socket: openSocket(iface, options) });
  }

  /**
   * Opens a link that shares its addresses with other programs of this host. `flowSteering` says nothing then: the
   * kernel gives the link only packets to its own queue pairs.
   * @throws VerbsError as `open` and `SharedSockets.open`
   */
  static async openShared(options: PacketLinkOptions): Promise<PacketLink> {
    const iface = ethernetInterface(options);
    const { index: ifindex, addresses } = iface;
    const { bufferBytes = DEFAULT_BUFFER_BYTES } = options;
    const local = await LocalSockets.open({ ifindex, addresses, bufferBytes, onlyLocal: true });
    return local.shared.closedUnless(() => {
      const socket = openSocket(iface, options);
      const result = socket.share(local.sockets, iface.isLoopback ? 0 : local.shared.port.slot);
      if (result === 0) return new PacketLink({ ...options, iface, socket, local });
      socket.close();
      throw errnoError(result, `the packets on ${iface.name} cannot be shared`, {});
    });
  }

  private constructor(plan: Plan) {
    const { iface, socket, local } = plan;
    const { bufferBytes = DEFAULT_BUFFER_BYTES, flowSteering = false, neighbourTimeoutMs, addresses = [] } = plan;
    const fds = [socket.fd(), ...(local?.sockets.fds() ?? [])];
    super(iface, socket, fds, addresses.length > 0, local?.shared);
    this.#socket = socket;
    this.#local = local;
    this.#steering = flowSteering && local === undefined ? this.#steer() : {};
    if (local === undefined) for (const address of iface.addresses) this.addAddress(address, ipBytes(address));
    this.#neighbourTimeoutMs = neighbourTimeoutMs;
    this.#bufferBytes = bufferBytes;
  }

  protected readFeatures(): LinkFeatures {
    return {
      maxFrame: this.interface.mtu + ETHERNET_BYTES,
      ipHeaderVisible: true,
      sourcePort: 0,
      ipIdentification: 'as written',
      ...icrcFeatures(),
      ...this.gsoFeatures,
      ...this.#steering,
      ...this.#local?.shared.features,
    };
  }

  get sourcePortTo(): Link['sourcePortTo'] {
    return this.#local?.sourcePortTo;
  }

  /** Takes a share of the queue pair numbers, a random one, so that a peer does not soon see a number again. */
  #steer(): Pick<LinkFeatures, 'flowSteering'> {
    const share = bindFree(this.names, SHARES, randomInt(SHARES), (number) => `flow/${number}`);
    if (share === undefined) {
      this.close();
      throw new VerbsError(
        'EADDRINUSE',
        `other devices on ${this.interface.name} have all ${SHARES} shares of the queue pair numbers: close one of them, ` +
          'or open this one without flowSteering',
      );
    }
    this.#releaseShare = share.release;
    const flowSteering = { mask: SHARES - 1, value: share.number };
    const result = this.#socket.steer(flowSteering.mask, flowSteering.value);
    if (result === 0) return { flowSteering };
    this.close();
    throw errnoError(result, `no flow steering on ${this.interface.name}`, {});
  }

  override close(): void {
    super.close();
    this.#releaseShare?.();
  }

  /** Makes the ring, unless the socket's buffer or the card's memory is too small for one. Never rejects. */
  async prepare({ slotBytes, memoryBytes }: CardRoom): Promise<void> {
    const bytes = roundDown(Math.min(this.#bufferBytes / 2, memoryBytes / RING_SHARE), RING_UNIT);
    const isIdle = this.#local !== undefined && this.interface.isLoopback;
    if (bytes === 0 || slotBytes < COALESCED_BYTES || isIdle) return;
    const frameBytes = roundUp(Math.min(this.interface.mtu, LONGEST_PACKET) + RING_HEADERS, CACHE_LINE);
    if ((await this.#socket.makeRing(bytes, frameBytes)) === 0) this.#ring = { bytes, frameBytes };
  }

  /**
   * @throws VerbsError ENOMEM if the kernel cannot map the ring; TypeError without `Frames.allocate`, RangeError if the
   * card has not enough memory left, both only if there is a ring
   */
  override attach(frames: Frames): void {
    super.attach(frames);
    this.#local?.sockets.attach(frames.memory, frameLayout(frames));
    if (this.#ring === undefined) return;
    const { bytes, frameBytes } = this.#ring;
    if (!frames.allocate) throw invalidType('the packet link needs Frames.allocate for its receive ring');
    // one unit more, for the alignment
    const offset = roundUp(frames.allocate(bytes + RING_UNIT), RING_UNIT);
    const result = this.#socket.mapRing(offset, bytes, frameBytes);
    if (result < 0) throw errnoError(result, `the receive ring on ${this.interface.name} cannot be mapped`, {});
  }

  override get pushesFrames(): boolean {
    return this.#ring !== undefined;
  }

  override get notes(): readonly string[] {
    const unbound = [...this.#unboundPorts];
    const bytes = this.#ring?.bytes;
    return [
      ...super.notes,
      ...(bytes ? [`the kernel writes received frames into a ring of ${bytes} bytes in the card's memory`] : []),
      ...unbound.map((address) => `UDP port ${ROCE_PORT} of ${address} is bound by another program or by rxe`),
    ];
  }

  /** Adds the gauge `port_not_held`: the number of addresses whose RoCE port another program or rxe has bound. */
  override counters(): LinkCounters {
    const counters = { ...super.counters(), port_not_held: this.#unboundPorts.size };
    return this.#local?.addTo(counters) ?? counters;
  }

  watchPaths(onChange: () => void): void {
    this.followPaths(onChange);
  }

  protected lookUp(destination: string, source: string): Promise<Resolved> {
    const { closing } = this;
    const hasLocalSockets = this.#local !== undefined;
    const options = { closing, timeoutMs: this.#neighbourTimeoutMs, hasLocalSockets };
    return resolveNeighbour(this.interface, destination, source, options);
  }

  protected override lastFrameSocket(source: string, frame: Uint8Array): number {
    return this.#local?.socketFor(source, frame) ?? super.lastFrameSocket(source, frame);
  }

  joinGroup(group: string): void {
    const bytes = ipBytes(group);
    const result = this.#socket.joinGroup(bytes, multicastMac(bytes), this.interface.index);
    if (result < 0) throw this.cannotJoin(result, group);
  }

  leaveGroup(group: string): void {
    const bytes = ipBytes(group);
    this.#socket.leaveGroup(bytes, multicastMac(bytes), this.interface.index);
  }

  protected addAddress(address: string, bytes: Uint8Array): void {
    if (this.#local) {
      this.addShared(address);
      return;
    }
    const scope = isLinkLocal(bytes) ? this.interface.index : 0;
    // Several cards may bind the port, but a group of the broker must not get a member that the broker does not know.
    const result = this.#socket.bindPort(bytes, ROCE_PORT, scope, !hasBroker());
    if (result === 0) return;
    this.#unboundPorts.add(address);
    if (errnoName(result) === 'EADDRINUSE')
      emitWarning(
        'WASM_ROCE_PORT_TAKEN',
        `UDP port ${ROCE_PORT} of ${address} is bound by another program or by rxe, which answers the same packets: ` +
          'give this device, or the other one, an address of its own',
      );
  }

  protected removeAddress(address: string, bytes: Uint8Array): void {
    if (this.#local) this.#local.shared.remove(address);
    else if (!this.#unboundPorts.delete(address)) this.#socket.unbindPort(bytes);
  }
}

/** @throws VerbsError ENODEV, EADDRNOTAVAIL */
function ethernetInterface(options: PacketLinkOptions): HostInterface {
  const iface = chooseInterface(options);
  if (!iface.isEthernet) throw new VerbsError('ENODEV', `${iface.name} does not carry Ethernet frames`);
  return iface;
}

/** @throws VerbsError EPERM, ENODEV */
function openSocket(
  iface: HostInterface,
  { bufferBytes = DEFAULT_BUFFER_BYTES }: PacketLinkOptions,
): NativePacketSocket {
  const socket = new (native().PacketSocket)();
  const result = socket.open(iface.index, iface.mac, bufferBytes);
  if (result === 0) return socket;
  throw errnoError(result, `no packet socket on ${iface.name}`, {
    EPERM:
      `a packet socket on ${iface.name} needs the capability CAP_NET_RAW: run as root, ` +
      `or give it to node (setcap cap_net_raw+ep ${process.execPath}), or use the udp link, which needs none`,
    ENODEV: `${iface.name} no longer exists`,
  });
}
