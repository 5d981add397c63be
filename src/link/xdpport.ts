/**
 * What the xdp link has open of the kernel: the XDP program, a socket for each queue, memberships of groups; and the two
 * directions over them.
 */
import { closeSync } from 'node:fs';
import { VerbsError } from '../errors.js';
import { native } from '../native.js';
import { multicastMac } from './address.js';
import type { HostInterface } from './interfaces.js';
import type { Frames, LinkCounters } from './link.js';
import type { FrameSocket } from './sockets.js';
import { type XdpMode, XdpProgram } from './xdpprogram.js';
import { CHUNK_FRAME_BYTES, XdpReceiver } from './xdpreceiver.js';
import { layOut, openQueue, type XdpQueue } from './xdpsocket.js';
import { BUFFER_BYTES, macNumber, type OutQueue, XdpTransmitter } from './xdptransmitter.js';

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

/** Bytes around an IP packet: Ethernet header, 802.1Q tag. */
const ETHERNET_BYTES = 14;
const TAG_BYTES = 4;
/** Queues that the program's map has room for. */
export const MOST_QUEUES = 256;

export class XdpPort implements FrameSocket {
  readonly #options: XdpOptions;
  /** The interface as it is now. */
  readonly #end: () => HostInterface;
  /** A frame may have several pieces: decided by the MTU at the beginning, as it must be said when a socket is bound. */
  readonly #inPieces: boolean;
  readonly #queues: XdpQueue[] = [];
  readonly #groups = new Map<string, number>();
  #program: XdpProgram | undefined;
  #receiver: XdpReceiver | undefined;
  #transmitter: XdpTransmitter | undefined;

  constructor(options: XdpOptions, mtu: number, end: () => HostInterface) {
    this.#options = options;
    this.#end = end;
    this.#inPieces = mtu + ETHERNET_BYTES + TAG_BYTES > CHUNK_FRAME_BYTES;
  }

  /** Bytes of the longest frame without a tag. */
  get longest(): number {
    const most = this.#inPieces ? BUFFER_BYTES : CHUNK_FRAME_BYTES;
    return Math.min(this.#end().mtu + ETHERNET_BYTES, most - TAG_BYTES);
  }

  /** File descriptors that are readable when there is something to receive. */
  get fds(): number[] {
    return this.#queues.map(({ fd }) => fd);
  }

  /** When `send` or `receive` should be called next although nothing has arrived (ns); 0 = never. */
  get nextDeadline(): number {
    return this.#transmitter?.retryAt ?? 0;
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

  /**
   * @param addresses that frames are taken for, of 4 or 16 bytes
   * @throws VerbsError EPERM, EBUSY, ENOMEM, EOPNOTSUPP; RangeError when the card has not enough memory
   */
  open(frames: Frames, addresses: readonly Uint8Array[]): void {
    try {
      this.#open(frames, addresses);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  #open(frames: Frames, addresses: readonly Uint8Array[]): void {
    const end = this.#end();
    this.#program = XdpProgram.attach(end, this.#options.mode);
    const place = layOut(frames);
    this.#openQueues(frames, place, end);
    const perQueue = Math.floor(place.chunks / this.#queues.length);
    this.#receiver = new XdpReceiver(frames, place.umem, place.firstChunk, perQueue, this.#queues);
    this.#transmitter = new XdpTransmitter(frames, place, this.#queues[0] as OutQueue, end.mac, this.#receiver);
    for (const { queue, fd } of this.#queues) this.#program.setSocket(queue, fd);
    for (const address of addresses) this.addAddress(address);
  }

  #openQueues(...[frames, place, end]: [Frames, ReturnType<typeof layOut>, HostInterface]): void {
    const { queues, zeroCopy, busyPoll } = this.#options;
    const options = { inPieces: this.#inPieces, zeroCopy, busyPoll };
    // Without a list: until there is no further queue.
    for (let n = 0; n < (queues?.length ?? MOST_QUEUES); n++) {
      const queue = queues?.[n] ?? n;
      const opened = openQueue(frames, place, end, queue, this.#queues[0], options);
      if (!opened && queues) throw new VerbsError('EINVAL', `${end.name} has no queue ${queue}`);
      if (!opened) return;
      this.#queues.push(opened);
    }
  }

  send(now: number): number {
    return this.#transmitter?.send(now, this.longest + TAG_BYTES) ?? 0;
  }

  receive(now: number): number {
    if (!this.#receiver) return 0;
    this.#transmitter?.wake(now);
    const moved = this.#receiver.receive();
    for (const { fill, rx, socket } of this.#queues)
      if (fill.needsWakeup || (this.#options.busyPoll !== undefined && rx.filled === 0)) socket.wakeRx();
    return moved;
  }

  addAddress(address: Uint8Array): void {
    for (const { queue } of this.#queues) this.#program?.addAddress(queue, address);
  }

  removeAddress(address: Uint8Array): void {
    for (const { queue } of this.#queues) this.#program?.removeAddress(queue, address);
  }

  /** @returns 0 or -errno */
  joinGroup(address: Uint8Array): number {
    const fd = native().holdGroup(address, this.#end().index);
    if (fd < 0) return fd;
    this.#groups.set(address.join(), fd);
    this.#transmitter?.groups.add(macNumber(multicastMac(address)));
    this.addAddress(address);
    return 0;
  }

  leaveGroup(address: Uint8Array): void {
    const fd = this.#groups.get(address.join());
    if (fd === undefined) return;
    this.#groups.delete(address.join());
    this.removeAddress(address);
    this.#transmitter?.groups.delete(macNumber(multicastMac(address)));
    closeSync(fd);
  }

  /** `rx_dropped` are all that found no room; of those `rx_ring_full` and `rx_fill_empty` came faster than they were taken. */
  counters(): LinkCounters {
    const counts = { ...NOTHING, ...this.#receiver?.counts, ...this.#transmitter?.counts };
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
    for (const { socket } of this.#queues.splice(0).reverse()) socket.close();
    for (const fd of this.#groups.values()) closeSync(fd);
    this.#groups.clear();
    this.#receiver = undefined;
    this.#transmitter = undefined;
  }
}

const NOTHING = {
  ...{ tx_frames: 0, tx_bytes: 0, tx_busy: 0, tx_too_long: 0, tx_invalid: 0, tx_errors: 0, tx_last_errno: 0 },
  ...{ rx_frames: 0, rx_bytes: 0, rx_truncated: 0, rx_dropped: 0, rx_errors: 0, rx_ring_full: 0, rx_fill_empty: 0 },
};
