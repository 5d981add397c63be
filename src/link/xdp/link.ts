/**
 * The `xdp` link: AF_XDP sockets, and an XDP program that redirects the card's packets to them. The kernel reads and
 * writes frames in the card's own memory and has its rings there, too, so receiving needs no system call. This gives
 * the lowest latency of all links. All other packets of the interface go to the kernel, including ARP, neighbour
 * discovery and ICMP.
 *
 * Files: program.ts attaches the XDP program; socket.ts opens and binds the sockets; port.ts manages both; mover.ts
 * moves frames with receiver.ts and transmitter.ts over the rings of rings.ts. The mover may run in another thread: it
 * is made from an `XdpPlan`, and shared.ts holds what both threads write.
 */

import { ipBytes } from '../../base/address.js';
import { VerbsError } from '../../errors.js';
import { LocalSockets } from '../broker/localsockets.js';
import type { Frames } from '../frames.js';
import { HostLink } from '../hostlink.js';
import { icrcFeatures } from '../icrcoffload.js';
import { chooseInterface, type HostInterface } from '../interfaces.js';
import type { Link, LinkCounters, LinkFeatures, Resolved } from '../link.js';
import { resolveNeighbour } from '../resolve.js';
import { DEFAULT_BUFFER_BYTES } from '../sockets.js';
import type { LinkTransfer } from '../transfer.js';
import { libbpf } from './libbpf.js';
import { type XdpOptions, XdpPort } from './port.js';

export { MAX_QUEUES, type XdpOptions } from './port.js';

/** Options of `XdpLink.open`. */
export interface XdpLinkOptions extends XdpOptions {
  /** Name of the interface. Default: the interface that has the first of `addresses`. */
  readonly interface?: string;
  /** Local addresses that the card uses. Default: all of the interface. */
  readonly addresses?: readonly string[];
  /** Time that a neighbour has to reply to ARP or neighbour discovery (ms). Default: 3000. */
  readonly neighbourTimeoutMs?: number;
}

/** A link by AF_XDP sockets. */
export class XdpLink extends HostLink {
  readonly kind = 'xdp';
  readonly #port: XdpPort;
  readonly #neighbourTimeoutMs: number | undefined;
  readonly #local: LocalSockets | undefined;

  /**
   * Chooses the interface and loads libbpf. The sockets need the card's memory, so `attach` opens them.
   * @throws VerbsError EOPNOTSUPP without the addon or libbpf; ENODEV and EADDRNOTAVAIL with the existing interfaces
   */
  static open(options: XdpLinkOptions): XdpLink {
    return new XdpLink(xdpInterface(options), options);
  }

  /**
   * Opens a link that shares its addresses with other programs of this host.
   * @throws VerbsError as `open` and `SharedSockets.open`
   */
  static async openShared(options: XdpLinkOptions): Promise<XdpLink> {
    const iface = xdpInterface(options);
    const { index: ifindex, addresses } = iface;
    // the kernel has only what the XDP program leaves to it
    const sharing = { ifindex, addresses, bufferBytes: DEFAULT_BUFFER_BYTES, onlyLocal: false };
    const local = await LocalSockets.open(sharing);
    return local.shared.closedUnless(() => new XdpLink(iface, options, local));
  }

  private constructor(iface: HostInterface, options: XdpLinkOptions, local?: LocalSockets) {
    const port = new XdpPort(options, iface.mtu, local && { slot: local.shared.port.slot, sockets: local.sockets });
    super(iface, port, local?.sockets.fds() ?? [], (options.addresses?.length ?? 0) > 0, local?.shared);
    this.#port = port;
    this.#local = local;
    this.#neighbourTimeoutMs = options.neighbourTimeoutMs;
  }

  protected readFeatures(): LinkFeatures {
    const { maxFrame } = this.#port;
    return {
      ...{ maxFrame, ipHeaderVisible: true, sourcePort: 0, ipIdentification: 'as written', ...icrcFeatures() },
      ...this.#local?.shared.features,
    };
  }

  get sourcePortTo(): Link['sourcePortTo'] {
    return this.#local?.sourcePortTo;
  }

  /** The kernel's way to move the frames. Complete after `attach`. */
  get notes(): readonly string[] {
    return this.#port.notes;
  }

  /**
   * @throws VerbsError EPERM, ENOMEM, EOPNOTSUPP; EBUSY if the interface has another XDP program or another card has
   * the queue; RangeError if the card has not enough memory left
   */
  attach(frames: Frames): void {
    this.#port.open(this.interface, frames, this.interface.addresses.map(ipBytes));
    for (const fd of this.#port.fds) this.watch(fd);
  }

  transfer(): LinkTransfer {
    const { plan } = this.#port;
    if (plan) return { kind: 'xdp', fd: this.fd, plan };
    throw new VerbsError('EINVAL', 'the xdp link can be transferred only after attach and before close');
  }

  send(now: number): number {
    return this.#port.mover?.send(now) ?? 0;
  }

  receive(now: number): number {
    return this.#port.mover?.receive(now) ?? 0;
  }

  override nextDeadline(): number {
    return this.#port.mover?.nextDeadline() ?? 0;
  }

  counters(): LinkCounters {
    const counters = this.#port.counters();
    return this.#local?.addTo(counters) ?? counters;
  }

  watchPaths(onChange: () => void): void {
    this.followPaths(onChange);
  }

  protected lookUp(destination: string, source: string): Promise<Resolved> {
    const { closing } = this;
    const options = { closing, timeoutMs: this.#neighbourTimeoutMs, hasLocalSockets: this.#local !== undefined };
    return resolveNeighbour(this.interface, destination, source, options);
  }

  protected override lastFrameSocket(source: string, frame: Uint8Array): number {
    return this.#local?.socketFor(source, frame) ?? super.lastFrameSocket(source, frame);
  }

  joinGroup(group: string): void {
    const result = this.#port.joinGroup(ipBytes(group), this.interface.index);
    if (result < 0) throw this.cannotJoin(result, group);
  }

  leaveGroup(group: string): void {
    this.#port.leaveGroup(ipBytes(group));
  }

  protected override interfaceChanged(): void {
    this.#port.setMtu(this.interface.mtu);
  }

  protected addAddress(address: string, bytes: Uint8Array): void {
    this.#port.addAddress(bytes, this.interface.mac);
    this.addShared(address);
  }

  protected removeAddress(address: string, bytes: Uint8Array): void {
    this.#port.removeAddress(bytes);
    this.#local?.shared.remove(address);
  }
}

/** @throws VerbsError EOPNOTSUPP, ENODEV, EADDRNOTAVAIL */
function xdpInterface(options: XdpLinkOptions): HostInterface {
  const iface = chooseInterface(options);
  if (!iface.isEthernet || iface.isLoopback)
    throw new VerbsError('ENODEV', `${iface.name} is not an Ethernet interface, which the xdp link needs`);
  libbpf();
  return iface;
}
