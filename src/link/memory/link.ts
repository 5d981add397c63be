/**
 * The `memory` link connects cards of one process by a hub. It needs neither privileges nor the addon. It acts only
 * when called: a frame is in the peer's receive ring when `send` returns, so tests can run cards in virtual time.
 */

import { ipBytes, ipText, macBytes, macText } from '../../base/address.js';
import { clearImmediate, clearTimeout, performance, setImmediate, setTimeout } from '../../base/timers.js';
import { VerbsError } from '../../errors.js';
import { type Frames, RX_SEGMENT_SHIFT } from '../frames.js';
import { burstLength, udpPayloadOffset } from '../gso.js';
import { ETHERNET_BYTES } from '../headers.js';
import type { Link, LinkCounters, LinkFeatures, LinkInterface, Resolved } from '../link.js';
import { RingView, wordsOf } from '../ring.js';
import { type MemoryHub, macKey } from './hub.js';

export { MemoryHub, type MemoryHubOptions } from './hub.js';

const DEFAULT_MTU = 4500;
/** Limits of a GSO burst, as for the kernel's UDP_SEGMENT over IPv4. */
const GSO_LIMITS = { packets: 64, bytes: 65507 } as const;
/** Bytes of the headers in front of the UDP payload: Ethernet with a tag, IPv6, UDP. */
const MAX_HEADER_BYTES = 66;
/** Frames up to this length are copied word by word: making a view of them costs more. */
const SHORT_FRAME_BYTES = 256;
/** The longest delay of setTimeout. A longer wait ends early. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Options of `memoryLink`. */
export interface MemoryLinkOptions {
  /** Local addresses of the card. They must be unique in the hub. */
  readonly addresses: readonly string[];
  /** MAC address: 6 bytes, or text such as `02:00:00:00:00:01`. Default: the next of the hub. */
  readonly mac?: string | Uint8Array;
  /** MTU in bytes of IP packet. Default: 4500, enough for a path MTU of 4096. */
  readonly mtu?: number;
  /** Name of the interface. Default: `mem0`, `mem1` and so on. */
  readonly name?: string;
}

/** Opens a link to a hub. @throws TypeError if an address is invalid; VerbsError EADDRINUSE if one is taken */
export function memoryLink(hub: MemoryHub, options: MemoryLinkOptions): MemoryLink {
  return new MemoryLink(hub, options);
}

/** A link to the other cards of a hub. */
export class MemoryLink implements Link {
  readonly kind = 'memory';
  readonly pushesFrames = true;
  readonly features: LinkFeatures;
  readonly interface: LinkInterface;
  readonly #hub: MemoryHub;
  readonly #counters = {
    tx_frames: 0,
    tx_bytes: 0,
    tx_busy: 0,
    tx_too_long: 0,
    tx_unreachable: 0,
    rx_frames: 0,
    rx_bytes: 0,
    rx_dropped: 0,
  };
  /** Links that keep frames in their transmit rings because this card's receive ring is full. */
  readonly #blocked = new Set<MemoryLink>();
  #memory: Uint8Array = new Uint8Array(0);
  #words: Uint32Array = new Uint32Array(0);
  /** For each descriptor of the transmit ring, a view of the frame that it held last. */
  #views: Uint8Array[] = [];
  /**
   * Receive slots, and how many were used since the ring was last empty: the first are still in the processor's cache.
   */
  #slots: number[] = [];
  #usedSlots = 0;
  /** Destination of the last frame, by MAC address. */
  #lastMac = -1;
  #lastPeer: MemoryLink | undefined;
  #slotBytes = 0;
  #acceptsSuperPackets = false;
  #tx: RingView | undefined;
  #rx: RingView | undefined;
  #arrived = 0;
  #onReadable: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  #immediate: NodeJS.Immediate | undefined;

  constructor(hub: MemoryHub, { addresses, mac, mtu = DEFAULT_MTU, name }: MemoryLinkOptions) {
    const number = hub.nextNumber();
    this.#hub = hub;
    this.interface = {
      name: name ?? `mem${number}`,
      index: number + 1,
      mtu,
      mac: ownMac(mac, number),
      addresses: addresses.map((address) => ipText(ipBytes(address))),
      up: true,
    };
    this.features = {
      maxFrame: mtu + ETHERNET_BYTES,
      ipHeaderVisible: true,
      sourcePort: 0,
      ipIdentification: 'as written',
      ...(hub.coalesces && { gso: GSO_LIMITS, coalescedBytes: GSO_LIMITS.bytes + MAX_HEADER_BYTES }),
    };
    hub.join(this);
  }

  attach(frames: Frames): void {
    const { memory, tx, rx } = frames;
    this.#memory = memory;
    this.#words = wordsOf(memory);
    this.#slotBytes = frames.slotBytes;
    this.#acceptsSuperPackets = frames.slotBytes >= (this.features.coalescedBytes ?? Number.POSITIVE_INFINITY);
    this.#views = Array.from({ length: tx.mask + 1 }, () => memory.subarray(0, 0));
    this.#tx = new RingView(memory, tx);
    const ring = new RingView(memory, rx);
    this.#slots = Array.from({ length: rx.mask + 1 }, (_, n) => ring.addr(n));
    this.#rx = ring;
  }

  send(_now: number): number {
    const ring = this.#tx;
    if (!ring) return 0;
    const first = ring.consumer;
    const filled = ring.filled;
    let done = 0;
    while (done < filled) {
      const count = this.#hub.coalesces ? burstLength(ring, first + done, filled - done) : 1;
      const sent = count > 1 ? this.#sendBurst(ring, first + done, count) : this.#sendOne(ring, first + done);
      done += sent;
      if (sent < count) break;
    }
    ring.consumer = first + done;
    return done;
  }

  /** Returns the number of descriptors filled since the last call. The frames are in the ring already. */
  receive(_now: number): number {
    const arrived = this.#arrived;
    this.#arrived = 0;
    if (this.#blocked.size > 0 && (this.#rx?.free ?? 0) > 0) {
      for (const sender of this.#blocked) sender.#wakeSoon();
      this.#blocked.clear();
    }
    return arrived;
  }

  nextDeadline(): number {
    return 0;
  }

  wait(deadline: number, keepAlive: boolean, onReadable: () => void): void {
    this.cancelWait();
    this.#onReadable = onReadable;
    if (this.#arrived > 0) {
      this.#wakeSoon();
      return;
    }
    // Without a deadline the timer still keeps the process running until a frame arrives, if `keepAlive` says so.
    if (deadline === 0 && !keepAlive) return;
    const ms = deadline === 0 ? MAX_TIMER_MS : (deadline - performance.now() * 1e6) / 1e6;
    this.#timer = setTimeout(() => this.#wake(), Math.min(Math.max(0, Math.ceil(ms)), MAX_TIMER_MS));
    if (!keepAlive) this.#timer.unref();
  }

  cancelWait(): void {
    this.#onReadable = undefined;
    clearTimeout(this.#timer);
    clearImmediate(this.#immediate);
    this.#immediate = undefined;
  }

  counters(): LinkCounters {
    return { ...this.#counters };
  }

  async resolve(destination: string, source: string): Promise<Resolved> {
    const peer = this.#hub.owner(ipText(ipBytes(destination)));
    if (peer) return { destMac: peer.interface.mac };
    const known = [...this.#hub.links].flatMap((link) => link.interface.addresses).join(', ');
    throw new VerbsError(
      'EHOSTUNREACH',
      `no card of the hub of ${source} has the address ${destination}; the hub has ${known}`,
    );
  }

  joinGroup(group: string): void {
    this.#hub.joinGroup(ipText(ipBytes(group)), this);
  }

  leaveGroup(group: string): void {
    this.#hub.leaveGroup(ipText(ipBytes(group)), this);
  }

  close(): void {
    this.cancelWait();
    this.#hub.leave(this);
    for (const sender of this.#blocked) sender.#wakeSoon();
    this.#blocked.clear();
    this.#tx = undefined;
    this.#rx = undefined;
  }

  /** Removes a link that has left the hub from those that wait for room here. */
  unblock(other: MemoryLink): void {
    this.#blocked.delete(other);
  }

  /** Sends one frame. @returns 0 if the frame must stay in the ring for now, else 1 */
  #sendOne(ring: RingView, cursor: number): number {
    const counters = this.#counters;
    const [addr, length] = [ring.addr(cursor), ring.length(cursor)];
    if (length === 0) return 1;
    if (length > this.features.maxFrame || addr + length > this.#memory.length) {
      counters.tx_too_long++;
      return 1;
    }
    const members = this.#hub.members(this.#memory, addr, length);
    if (members) {
      for (const member of members) member.#acceptIfRoom(this, cursor, addr, length);
      this.#countSent(length, 1);
      return 1;
    }
    const peer = this.#peerOf(addr, length);
    if (peer === undefined || peer.#rx === undefined) {
      counters.tx_unreachable++;
      return 1;
    }
    if (length > peer.#slotBytes) {
      counters.tx_too_long++;
      return 1;
    }
    if (peer.#rx.free === 0) {
      counters.tx_busy++;
      peer.#blocked.add(this);
      return 0;
    }
    peer.#accept(this, cursor, addr, length);
    this.#countSent(length, 1);
    return 1;
  }

  /** Sends a GSO burst, as one super-packet if the receiver's slots can hold it. @returns the number of frames sent */
  #sendBurst(ring: RingView, cursor: number, count: number): number {
    const [addr, length] = [ring.addr(cursor), ring.length(cursor)];
    const headers = udpPayloadOffset(this.#memory, addr);
    const peer = this.#peerOf(addr, length);
    if (peer === undefined || peer.#rx === undefined || peer.#rx.free === 0 || !peer.#acceptsSuperPackets) {
      let sent = 0;
      while (sent < count && this.#sendOne(ring, cursor + sent) === 1) sent++;
      return sent;
    }
    peer.#acceptBurst(this, ring, cursor, count, headers);
    this.#countSent((count - 1) * length + ring.length(cursor + count - 1), count);
    return count;
  }

  #countSent(bytes: number, frames: number): void {
    this.#counters.tx_frames += frames;
    this.#counters.tx_bytes += bytes;
  }

  /** Returns the link that a frame is for. Usually this is the link that the frame before was for. */
  #peerOf(addr: number, length: number): MemoryLink | undefined {
    const mac = length < ETHERNET_BYTES ? -1 : macKey(this.#memory, addr);
    if (mac === this.#lastMac && this.#lastPeer?.isOpen) return this.#lastPeer;
    const peer = this.#hub.destination(this.#memory, addr, length);
    if (peer !== undefined && macKey(peer.interface.mac, 0) === mac) {
      this.#lastMac = mac;
      this.#lastPeer = peer;
    }
    return peer;
  }

  /** Whether the link is attached and not closed. */
  get isOpen(): boolean {
    return this.#rx !== undefined;
  }

  /** Returns a view of the bytes at `addr`. The last view for the same descriptor often fits and is used again. */
  #view(cursor: number, addr: number, length: number): Uint8Array {
    const index = (cursor >>> 0) % this.#views.length;
    let view = this.#views[index] as Uint8Array;
    if (view.byteOffset !== this.#memory.byteOffset + addr || view.length !== length) {
      view = this.#memory.subarray(addr, addr + length);
      this.#views[index] = view;
    }
    return view;
  }

  /** Receives a multicast frame. The frame is dropped if there is no room: a sender does not wait for a member. */
  #acceptIfRoom(from: MemoryLink, cursor: number, addr: number, length: number): void {
    if (this.#rx !== undefined && this.#rx.free > 0 && length <= this.#slotBytes)
      this.#accept(from, cursor, addr, length);
    else this.#counters.rx_dropped++;
  }

  #accept(from: MemoryLink, cursor: number, addr: number, length: number): void {
    const ring = this.#rx as RingView;
    const at = ring.producer;
    const slot = this.#takeSlot(ring, at);
    const isAligned = ((addr | slot) & 3) === 0;
    if (isAligned && length <= SHORT_FRAME_BYTES && length + 3 <= this.#slotBytes) {
      const [source, target] = [addr >>> 2, slot >>> 2];
      for (let i = 0; i < (length + 3) >>> 2; i++) this.#words[target + i] = from.#words[source + i] as number;
    } else {
      this.#memory.set(from.#view(cursor, addr, length), slot);
    }
    ring.describe(at, length, 0);
    this.#countArrived(ring, length, 1);
  }

  #acceptBurst(from: MemoryLink, tx: RingView, cursor: number, count: number, headers: number): void {
    const ring = this.#rx as RingView;
    const slot = this.#takeSlot(ring, ring.producer);
    const segment = tx.length(cursor) - headers;
    let end = slot + headers;
    this.#memory.set(from.#memory.subarray(tx.addr(cursor), tx.addr(cursor) + headers), slot);
    for (let i = 0; i < count; i++) {
      const bytes = tx.length(cursor + i) - headers;
      this.#memory.set(from.#view(cursor + i, tx.addr(cursor + i) + headers, bytes), end);
      end += bytes;
    }
    ring.describe(ring.producer, end - slot, segment << RX_SEGMENT_SHIFT);
    this.#countArrived(ring, end - slot + (count - 1) * headers, count);
  }

  /** Returns a slot for the next frame, and makes the descriptor point at it. */
  #takeSlot(ring: RingView, at: number): number {
    if (ring.filled === 0) this.#usedSlots = 0;
    const slot = this.#slots[this.#usedSlots++ % this.#slots.length] as number;
    ring.setAddr(at, slot);
    return slot;
  }

  #countArrived(ring: RingView, bytes: number, frames: number): void {
    ring.producer = ring.producer + 1;
    this.#arrived++;
    this.#counters.rx_frames += frames;
    this.#counters.rx_bytes += bytes;
    if (this.#onReadable) this.#wakeSoon();
  }

  #wakeSoon(): void {
    if (!this.#onReadable || this.#immediate) return;
    // Not unref'd: the event loop may sleep before it runs an immediate that is.
    this.#immediate = setImmediate(() => this.#wake());
  }

  #wake(): void {
    const onReadable = this.#onReadable;
    this.cancelWait();
    onReadable?.();
  }
}

function ownMac(mac: string | Uint8Array | undefined, number: number): Uint8Array {
  if (mac === undefined) return Uint8Array.of(2, 0, 0, 0, (number + 1) >> 8, number + 1);
  return macBytes(typeof mac === 'string' ? mac : macText(mac));
}
