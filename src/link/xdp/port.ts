/**
 * The kernel objects of the xdp link: the XDP program, a socket for each queue, and group memberships. The mover gets a
 * plan of them (mover.ts).
 */

import { multicastMac } from '../../base/address.js';
import { VerbsError } from '../../errors.js';
import { native } from '../../native.js';
import type { Frames } from '../frames.js';
import { ETHERNET_BYTES, VLAN_TAG_BYTES } from '../headers.js';
import { icrcNotes } from '../icrcoffload.js';
import type { HostInterface } from '../interfaces.js';
import type { LinkCounters } from '../link.js';
import { type PlannedSockets, planLocal } from './local.js';
import { fillRings, XdpMover, type XdpPlan } from './mover.js';
import { type XdpMode, XdpProgram } from './program.js';
import { CHUNK_FRAME_BYTES } from './receiver.js';
import { XdpShared } from './shared.js';
import { allocateUmem, openQueue, type Umem, type XdpQueue } from './socket.js';
import { BUFFER_BYTES, macNumber } from './transmitter.js';

/** Options of a device's `xdp` link. */
export interface XdpOptions {
  /**
   * Queues of the interface that the card uses. Other cards, also of other processes, may use the other queues. The
   * interface decides which packet arrives on which queue (`ethtool -N`). Default: all queues.
   */
  readonly queues?: readonly number[];
  /** Place of the XDP program: `native` = in the driver, `generic` = in the kernel. Default: native, else generic. */
  readonly mode?: XdpMode;
  /** true = zero-copy mode or fail, false = copy mode. Default: zero-copy mode if the driver offers it. */
  readonly zeroCopy?: boolean;
  /**
   * Time in µs for which a system call polls the interface (SO_BUSY_POLL). Receiving is then a system call. Default:
   * off.
   */
  readonly busyPoll?: number;
}

/** The sockets by which other programs share the addresses of a port. */
export interface SharedAddresses {
  /** Slot of the card. */
  readonly slot: number;
  /** The sockets of its addresses. */
  readonly sockets: PlannedSockets;
}

/** Number of queues that fit into the XDP program's map. */
export const MAX_QUEUES = 256;

/** Opens and closes the kernel objects of an xdp link. */
export class XdpPort {
  /** The mover in this thread, made on first use. */
  #mover: XdpMover | undefined;
  #frames: Frames | undefined;
  #plan: XdpPlan | undefined;
  #program: XdpProgram | undefined;
  #queues: readonly XdpQueue[] = [];
  readonly #options: XdpOptions;
  readonly #shares: SharedAddresses | undefined;
  /** Whether a frame may have several buffers. The first MTU decides it, because a socket is bound with it. */
  readonly #multiBuffer: boolean;
  readonly #shared = new XdpShared();
  /** File descriptors of the group memberships. */
  readonly #groups = new Map<string, number>();

  /** @param shares undefined: the card shares its addresses with no other program */
  constructor(options: XdpOptions, mtu: number, shares?: SharedAddresses) {
    this.#options = options;
    this.#shares = shares;
    this.#multiBuffer = mtu + ETHERNET_BYTES + VLAN_TAG_BYTES > CHUNK_FRAME_BYTES;
    this.setMtu(mtu);
  }

  setMtu(mtu: number): void {
    const max = this.#multiBuffer ? BUFFER_BYTES : CHUNK_FRAME_BYTES;
    this.#shared.maxFrame = Math.min(mtu + ETHERNET_BYTES + VLAN_TAG_BYTES, max);
  }

  /** Bytes of the longest frame, without a tag. */
  get maxFrame(): number {
    return this.#shared.maxFrame - VLAN_TAG_BYTES;
  }

  /** File descriptors that are readable when there is something to receive. */
  get fds(): number[] {
    return this.#queues.map(({ fd }) => fd);
  }

  /** Description of the port, for people to read. */
  get notes(): string[] {
    const program = this.#program;
    if (!program) return [];
    const { mode, refusal, isShared } = program;
    const copies = this.#queues[0]?.socket.isZeroCopy() ? 'zero copy' : 'copy';
    const queues = this.#queues.map(({ queue }) => queue).join(', ');
    return [
      `XDP in ${mode} mode${refusal === undefined ? '' : `, because the driver refuses native mode (${refusal})`}; ${copies} mode; ` +
        `${this.#queues.length === 1 ? 'queue' : 'queues'} ${queues}; ` +
        `${this.#options.busyPoll === undefined ? 'need-wakeup' : `busy polling for ${this.#options.busyPoll} us`}`,
      ...icrcNotes(this.#frames ?? {}),
      ...(isShared ? ['the XDP program is shared with another card of this host'] : []),
    ];
  }

  /** The mover for this thread; undefined if the port is not open. */
  get mover(): XdpMover | undefined {
    if (this.#plan && this.#frames) this.#mover ??= new XdpMover(this.#frames.memory, this.#plan);
    return this.#mover;
  }

  /** The plan of a mover for another thread; undefined if the port is not open. */
  get plan(): XdpPlan | undefined {
    return this.#plan;
  }

  /**
   * Attaches the XDP program and opens the sockets. Closes everything again if a step fails.
   * @param addresses addresses whose packets the program redirects, 4 or 16 bytes each
   * @throws VerbsError EPERM, EBUSY, ENOMEM, EOPNOTSUPP; RangeError if the card has not enough memory left
   */
  open(iface: HostInterface, frames: Frames, addresses: readonly Uint8Array[]): void {
    try {
      this.#program = XdpProgram.attach(iface, this.#options.mode);
      const umem = allocateUmem(frames);
      this.#openQueues(iface, frames, umem);
      this.#frames = frames;
      const local = this.#shares && planLocal(this.#shares.sockets, frames);
      this.#plan = { ...this.#makePlan(iface, frames, umem), ...(local && { local }) };
      fillRings(frames.memory, this.#plan);
      for (const { queue, fd } of this.#queues) this.#program.setSocket(queue, fd);
      for (const address of addresses) this.addAddress(address, iface.mac);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Makes the program redirect packets to an address and its MAC address. @throws VerbsError EIO */
  addAddress(address: Uint8Array, mac: Uint8Array): void {
    const slot = this.#shares?.slot ?? 0;
    for (const { queue } of this.#queues) this.#program?.addAddress(queue, address, mac, slot);
  }

  /** Leaves packets to an address to the kernel. */
  removeAddress(address: Uint8Array): void {
    for (const { queue } of this.#queues) this.#program?.removeAddress(queue, address);
  }

  /** Joins a multicast group. @returns 0 or -errno */
  joinGroup(address: Uint8Array, ifindex: number): number {
    const fd = native().joinGroup(address, ifindex);
    if (fd < 0) return fd;
    this.#groups.set(address.join(), fd);
    const mac = multicastMac(address);
    this.#shared.addGroup(macNumber(mac));
    this.addAddress(address, mac);
    return 0;
  }

  /** Leaves a multicast group. Does nothing if the port has not joined. */
  leaveGroup(address: Uint8Array): void {
    const fd = this.#groups.get(address.join());
    if (fd === undefined) return;
    this.#groups.delete(address.join());
    this.removeAddress(address);
    this.#shared.removeGroup(macNumber(multicastMac(address)));
    native().closeFd(fd);
  }

  /**
   * `rx_dropped` counts all frames that found no room. `rx_ring_full` and `rx_fill_empty` are the kernel's reasons: a
   * full receive ring, an empty fill ring.
   */
  counters(): LinkCounters {
    const counts = { ...this.#shared.counters(), rx_errors: 0, rx_ring_full: 0, rx_fill_empty: 0 };
    for (const { socket } of this.#queues) {
      const kernel = socket.statistics();
      counts.rx_dropped += kernel.rxDropped + kernel.rxRingFull;
      counts.rx_ring_full += kernel.rxRingFull;
      counts.rx_fill_empty += kernel.rxFillEmpty;
      counts.rx_errors += kernel.rxInvalid;
      counts.tx_invalid += kernel.txInvalid;
    }
    return counts;
  }

  close(): void {
    this.#program?.close();
    this.#program = undefined;
    // Last the first socket, which owns the UMEM that the others share.
    for (const { socket } of this.#queues.toReversed()) socket.close();
    this.#queues = [];
    for (const fd of this.#groups.values()) native().closeFd(fd);
    this.#groups.clear();
    this.#plan = undefined;
    this.#mover = undefined;
  }

  #openQueues(iface: HostInterface, frames: Frames, umem: Umem): void {
    const { queues, zeroCopy, busyPoll } = this.#options;
    const options = { multiBuffer: this.#multiBuffer, zeroCopy, busyPoll };
    // Without a list: all queues that exist.
    for (let n = 0; n < (queues?.length ?? MAX_QUEUES); n++) {
      const queue = queues?.[n] ?? n;
      const opened = openQueue(frames, umem, iface, queue, this.#queues[0], options);
      if (!opened && queues) throw new VerbsError('EINVAL', `${iface.name} has no queue ${queue}`);
      if (!opened) return;
      this.#queues = [...this.#queues, opened];
    }
  }

  #makePlan(iface: HostInterface, { tx, rx, slotBytes, icrcOffload = false }: Frames, umem: Umem): XdpPlan {
    const { offset, buffers, firstChunk, chunks } = umem;
    return {
      ...{ frames: { tx, rx, slotBytes, icrcOffload }, umem: offset, buffers, firstChunk },
      chunksPerQueue: Math.floor(chunks / this.#queues.length),
      queues: this.#queues.map(({ fd, rx, fill, tx, completion }) => ({ fd, rx, fill, completion, ...(tx && { tx }) })),
      mac: iface.mac,
      busyPolls: this.#options.busyPoll !== undefined,
      shared: this.#shared.buffer,
    };
  }
}
