/**
 * The `xdp` link: AF_XDP sockets, and an XDP program that gives them what is for the card. The kernel reads and writes frames
 * in the card's own memory, and has its rings there too, so that receiving is no call at all: the lowest latency of the links.
 * Everything else on the interface goes on to the kernel, as ARP, neighbour discovery and ICMP must.
 */
import { VerbsError } from '../errors.js';
import { ipBytes } from './address.js';
import { HostLink } from './hostlink.js';
import { chooseInterface, type HostInterface } from './interfaces.js';
import type { Frames, LinkCounters, LinkFeatures, Resolved } from './link.js';
import type { Loan } from './loan.js';
import { resolveNeighbour } from './resolve.js';
import { libbpf } from './xdplibbpf.js';
import { type XdpOptions, XdpPort } from './xdpport.js';

export { MOST_QUEUES, type XdpOptions } from './xdpport.js';

export interface XdpLinkOptions extends XdpOptions {
  /** Name of the interface; by default the one that has the first of `addresses`. */
  readonly interface?: string;
  /** Local addresses that the card uses; by default all of the interface. */
  readonly addresses?: readonly string[];
  /** How long a neighbour may take to answer ARP or neighbour discovery. */
  readonly neighbourTimeoutMs?: number;
}

export class XdpLink extends HostLink {
  readonly kind = 'xdp';
  readonly #port: XdpPort;
  readonly #neighbourTimeoutMs: number | undefined;

  /**
   * What the kernel refuses is known at `attach` only, as its sockets are opened on the card's memory.
   * @throws VerbsError EOPNOTSUPP without the addon or libbpf; ENODEV and EADDRNOTAVAIL with what there is instead
   */
  static open(options: XdpLinkOptions): XdpLink {
    const end = chooseInterface(options);
    if (!end.isEthernet || end.isLoopback)
      throw new VerbsError('ENODEV', `${end.name} is no Ethernet interface, which the xdp link needs`);
    libbpf();
    return new XdpLink(end, options, (options.addresses?.length ?? 0) > 0);
  }

  private constructor(end: HostInterface, options: XdpLinkOptions, only: boolean) {
    const port = new XdpPort(options, end.mtu);
    super(end, port, [], only);
    this.#port = port;
    this.#neighbourTimeoutMs = options.neighbourTimeoutMs;
  }

  get features(): LinkFeatures {
    return { maxFrame: this.#port.longest, ipHeaderVisible: true, sourcePort: 0, ipIdentification: 'as written' };
  }

  /** How the kernel moves the frames; complete once attached. */
  get notes(): readonly string[] {
    return this.#port.notes;
  }

  /**
   * @throws VerbsError EPERM, ENOMEM, EOPNOTSUPP; EBUSY when the interface has somebody else's XDP program, or another card
   * has the queue; RangeError when the card lends no memory
   */
  attach(frames: Frames): void {
    this.#port.open(this.interface, frames, this.interface.addresses.map(ipBytes));
    for (const fd of this.#port.fds) this.watch(fd);
  }

  lend(): Loan {
    const { plan } = this.#port;
    if (plan) return { kind: 'xdp', fd: this.fd, plan };
    throw new VerbsError('EINVAL', 'the xdp link can be lent only when it is attached to a card, and not closed');
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
    return this.#port.counters();
  }

  resolve(destination: string, source: string): Promise<Resolved> {
    return resolveNeighbour(this.interface, destination, source, this.closing, this.#neighbourTimeoutMs);
  }

  joinGroup(group: string): void {
    const refused = this.#port.joinGroup(ipBytes(group), this.interface.index);
    if (refused < 0) throw this.cannotJoin(refused, group);
  }

  leaveGroup(group: string): void {
    this.#port.leaveGroup(ipBytes(group));
  }

  protected override interfaceChanged(): void {
    this.#port.setMtu(this.interface.mtu);
  }

  protected addAddress(_address: string, bytes: Uint8Array): void {
    this.#port.addAddress(bytes);
  }

  protected removeAddress(_address: string, bytes: Uint8Array): void {
    this.#port.removeAddress(bytes);
  }
}
