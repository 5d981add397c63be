/**
 * What the xdp link has open of the kernel: the XDP program, a socket for each queue, memberships of groups. Who moves the
 * frames gets a plan of it (xdpmover.ts).
 */
import { VerbsError } from '../errors.js';
import { native } from '../native.js';
import { multicastMac } from './address.js';
import { ETHERNET_BYTES } from './hostlink.js';
import type { HostInterface } from './interfaces.js';
import type { Frames, LinkCounters } from './link.js';
import { prepare, XdpMover, type XdpPlan } from './xdpmover.js';
import { type XdpMode, XdpProgram } from './xdpprogram.js';
import { CHUNK_FRAME_BYTES } from './xdpreceiver.js';
import { XdpShared } from './xdpshared.js';
import { layOut, openQueue, type XdpMemory, type XdpQueue } from './xdpsocket.js';
import { BUFFER_BYTES, macNumber } from './xdptransmitter.js';

export interface XdpOptions {
  /**
   * Queues of the interface that the card has; another card, of this process or another one, may have the others. What
   * arrives on which queue is the interface's own matter (`ethtool -N`). Default: all.
   */
  readonly queues?: readonly number[];
  /** Default: `native`, in the driver, and where that refuses `generic`, in the kernel behind it. */
  readonly mode?: XdpMode;
  /** true = or fail, false = always copy. Default: where the driver offers it. */
  readonly zeroCopy?: boolean;
  /** Microseconds for which system calls poll the interface (SO_BUSY_POLL); receiving is one then. Default: not at all. */
  readonly busyPoll?: number;
}

/** Bytes of an 802.1Q tag, for which there is room beside the MTU. */
const TAG_BYTES = 4;
/** Queues that the program's map has room for. */
export const MOST_QUEUES = 256;

export class XdpPort {
  /** Of this thread; made when it is first asked to move frames. */
  #mover: XdpMover | undefined;
  #frames: Frames | undefined;
  #plan: XdpPlan | undefined;
  #program: XdpProgram | undefined;
  #queues: readonly XdpQueue[] = [];
  readonly #options: XdpOptions;
  /** A frame may have several pieces: decided by the MTU at the beginning, as it must be said when a socket is bound. */
  readonly #inPieces: boolean;
  readonly #shared = new XdpShared();
  /** File descriptors of memberships. */
  readonly #groups = new Map<string, number>();

  constructor(options: XdpOptions, mtu: number) {
    this.#options = options;
    this.#inPieces = mtu + ETHERNET_BYTES + TAG_BYTES > CHUNK_FRAME_BYTES;
    this.setMtu(mtu);
  }

  setMtu(mtu: number): void {
    const most = this.#inPieces ? BUFFER_BYTES : CHUNK_FRAME_BYTES;
    this.#shared.longest = Math.min(mtu + ETHERNET_BYTES + TAG_BYTES, most);
  }

  /** Bytes of the longest frame, beside a tag. */
  get longest(): number {
    return this.#shared.longest - TAG_BYTES;
  }

  /** File descriptors that are readable when there is something to receive. */
  get fds(): number[] {
    return this.#queues.map(({ fd }) => fd);
  }

  /** How frames are moved, for people. */
  get notes(): string[] {
    const program = this.#program;
    if (!program) return [];
    const { mode, refusal, isShared } = program;
    const copies = this.#queues[0]?.socket.isZeroCopy() ? 'zero copy' : 'copy';
    const queues = this.#queues.map(({ queue }) => queue).join(', ');
    return [
      `XDP in ${mode} mode${refusal === undefined ? '' : `, as the driver refuses native (${refusal})`}; ${copies} mode; ` +
        `${this.#queues.length === 1 ? 'queue' : 'queues'} ${queues}; ` +
        `${this.#options.busyPoll === undefined ? 'need-wakeup' : `busy polling for ${this.#options.busyPoll} us`}`,
      ...(isShared ? ['another card of this host has attached the XDP program: it is shared'] : []),
    ];
  }

  /** What moves frames in this thread, once open. */
  get mover(): XdpMover | undefined {
    if (this.#plan && this.#frames) this.#mover ??= new XdpMover(this.#frames.memory, this.#plan);
    return this.#mover;
  }

  /** What another thread can move frames with instead; undefined when not open. */
  get plan(): XdpPlan | undefined {
    return this.#plan;
  }

  /**
   * @param addresses that frames are taken for, of 4 or 16 bytes
   * @throws VerbsError EPERM, EBUSY, ENOMEM, EOPNOTSUPP; RangeError when the card has not enough memory
   */
  open(end: HostInterface, frames: Frames, addresses: readonly Uint8Array[]): void {
    try {
      this.#program = XdpProgram.attach(end, this.#options.mode);
      const place = layOut(frames);
      this.#openQueues(end, frames, place);
      this.#frames = frames;
      this.#plan = this.#planOf(end, frames, place);
      prepare(frames.memory, this.#plan);
      for (const { queue, fd } of this.#queues) this.#program.setSocket(queue, fd);
      for (const address of addresses) this.addAddress(address);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  addAddress(address: Uint8Array): void {
    for (const { queue } of this.#queues) this.#program?.addAddress(queue, address);
  }

  removeAddress(address: Uint8Array): void {
    for (const { queue } of this.#queues) this.#program?.removeAddress(queue, address);
  }

  /** @returns 0 or -errno */
  joinGroup(address: Uint8Array, ifindex: number): number {
    const fd = native().holdGroup(address, ifindex);
    if (fd < 0) return fd;
    this.#groups.set(address.join(), fd);
    this.#shared.addGroup(macNumber(multicastMac(address)));
    this.addAddress(address);
    return 0;
  }

  leaveGroup(address: Uint8Array): void {
    const fd = this.#groups.get(address.join());
    if (fd === undefined) return;
    this.#groups.delete(address.join());
    this.removeAddress(address);
    this.#shared.removeGroup(macNumber(multicastMac(address)));
    native().closeFd(fd);
  }

  /** `rx_dropped` are all that found no room; of those `rx_ring_full` and `rx_fill_empty` came faster than they were taken. */
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
    // The first socket has the memory that the others share.
    for (const { socket } of this.#queues.toReversed()) socket.close();
    this.#queues = [];
    for (const fd of this.#groups.values()) native().closeFd(fd);
    this.#groups.clear();
    this.#plan = undefined;
    this.#mover = undefined;
  }

  #openQueues(end: HostInterface, frames: Frames, place: XdpMemory): void {
    const { queues, zeroCopy, busyPoll } = this.#options;
    const options = { inPieces: this.#inPieces, zeroCopy, busyPoll };
    // Without a list: until there is no further queue.
    for (let n = 0; n < (queues?.length ?? MOST_QUEUES); n++) {
      const queue = queues?.[n] ?? n;
      const opened = openQueue(frames, place, end, queue, this.#queues[0], options);
      if (!opened && queues) throw new VerbsError('EINVAL', `${end.name} has no queue ${queue}`);
      if (!opened) return;
      this.#queues = [...this.#queues, opened];
    }
  }

  #planOf(end: HostInterface, { tx, rx, slotBytes }: Frames, place: XdpMemory): XdpPlan {
    const { umem, buffers, firstChunk, chunks } = place;
    return {
      ...{ frames: { tx, rx, slotBytes }, umem, buffers, firstChunk },
      perQueue: Math.floor(chunks / this.#queues.length),
      queues: this.#queues.map(({ fd, rx, fill, tx, completion }) => ({ fd, rx, fill, completion, ...(tx && { tx }) })),
      mac: end.mac,
      pollsBusily: this.#options.busyPoll !== undefined,
      shared: this.#shared.buffer,
    };
  }
}
