/**
 * The `memory` link: cards of one process, joined by a hub. Needs neither privileges nor the addon, and does nothing on
 * its own: a frame is in the peer's receive ring when `send` returns, so tests may drive cards in virtual time.
 */
import { VerbsError } from '../errors.js';
import { ipBytes, ipText, macBytes, macText } from './address.js';
import { type MemoryHub, macKey } from './hub.js';
import {
  type Frames,
  type Link,
  type LinkCounters,
  type LinkFeatures,
  type LinkInterface,
  type Resolved,
  RX_SEGMENT_SHIFT,
} from './link.js';
import { RingView, wordsOf } from './ring.js';
import { runLength, udpPayloadOffset } from './runs.js';

export { createMemoryHub, MemoryHub, type MemoryHubOptions } from './hub.js';

const ETHERNET_BYTES = 14;
const DEFAULT_MTU = 4500;
/** What the kernel sends in one go (UDP_SEGMENT): segments, and bytes of UDP payload over IPv4. */
const RUNS = { packets: 64, bytes: 65507 } as const;
/** In front of them: Ethernet with a tag, IPv6, UDP. */
const MOST_HEADER_BYTES = 66;
/** Frames up to so many bytes are copied word by word: a view of them costs more. */
const SHORT_FRAME = 256;
/** setTimeout takes no more (2^31-1 ms); who waits longer is called early. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export interface MemoryLinkOptions {
  /** Local addresses of the card; no two cards of a hub may share one. */
  readonly addresses: readonly string[];
  /** Six bytes, or as text, `02:00:00:00:00:01`; by default the hub's next. */
  readonly mac?: string | Uint8Array;
  /** Bytes of IP packet, 4500 by default, which is enough for a path MTU of 4096. */
  readonly mtu?: number;
  /** Name of the interface, `mem0` and so on by default. */
  readonly name?: string;
}

/** @throws TypeError for what is no address, VerbsError EADDRINUSE */
export function memoryLink(hub: MemoryHub, options: MemoryLinkOptions): MemoryLink {
  return new MemoryLink(hub, options);
}

export class MemoryLink implements Link {
  readonly kind = 'memory';
  readonly arrivesByItself = true;
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
  /** Those who hold back frames because this card's receive ring is full. */
  readonly #blocked = new Set<MemoryLink>();
  #memory: Uint8Array = new Uint8Array(0);
  #words: Uint32Array = new Uint32Array(0);
  /** A view of the frame that was last in each descriptor of the transmit ring. */
  #views: Uint8Array[] = [];
  /** Receive slots, and how many were filled since all were free: the first are still in the processor's cache. */
  #slots: number[] = [];
  #filledSlots = 0;
  /** Whom the last frame was for, by MAC. */
  #lastMac = -1;
  #lastPeer: MemoryLink | undefined;
  #slotBytes = 0;
  #takesRuns = false;
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
      ...(hub.coalesces && { runs: RUNS, coalescedBytes: RUNS.bytes + MOST_HEADER_BYTES }),
    };
    hub.join(this);
  }

  attach(frames: Frames): void {
    const { memory, tx, rx } = frames;
    this.#memory = memory;
    this.#words = wordsOf(memory);
    this.#slotBytes = frames.slotBytes;
    this.#takesRuns = frames.slotBytes >= (this.features.coalescedBytes ?? Number.POSITIVE_INFINITY);
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
      const count = this.#hub.coalesces ? runLength(ring, first + done, filled - done) : 1;
      const sent = count > 1 ? this.#sendRun(ring, first + done, count) : this.#sendOne(ring, first + done);
      done += sent;
      if (sent < count) break;
    }
    ring.consumer = first + done;
    return done;
  }

  /** The frames are in the ring already; tells how many have come since the last call. */
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
    // Without a deadline a timer still holds the process, if that is wanted, until a frame comes.
    if (deadline === 0 && !keepAlive) return;
    const ms = deadline === 0 ? LONGEST_TIMER_MS : (deadline - performance.now() * 1e6) / 1e6;
    this.#timer = setTimeout(() => this.#wake(), Math.min(Math.max(0, Math.ceil(ms)), LONGEST_TIMER_MS));
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
      `no card of ${source}'s hub has the address ${destination}; there is ${known}`,
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

  /** Forgets that another link waits for room; that link has left the hub. */
  unblock(other: MemoryLink): void {
    this.#blocked.delete(other);
  }

  /** @returns 0 when the frame must stay in the ring for now */
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

  /** Sends a run as one super-packet, if its receiver is one whose slots hold that. @returns how many frames have gone */
  #sendRun(ring: RingView, cursor: number, count: number): number {
    const [addr, length] = [ring.addr(cursor), ring.length(cursor)];
    const headers = udpPayloadOffset(this.#memory, addr);
    const peer = this.#peerOf(addr, length);
    if (peer === undefined || peer.#rx === undefined || peer.#rx.free === 0 || !peer.#takesRuns) {
      let sent = 0;
      while (sent < count && this.#sendOne(ring, cursor + sent) === 1) sent++;
      return sent;
    }
    peer.#acceptRun(this, ring, cursor, count, headers);
    this.#countSent((count - 1) * length + ring.length(cursor + count - 1), count);
    return count;
  }

  #countSent(bytes: number, frames: number): void {
    this.#counters.tx_frames += frames;
    this.#counters.tx_bytes += bytes;
  }

  /** The link that a frame is for. Most are for that of the one before. */
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

  get isOpen(): boolean {
    return this.#rx !== undefined;
  }

  /** What lies at `addr`, from the descriptor at this cursor on. The last view of it often fits. */
  #view(cursor: number, addr: number, length: number): Uint8Array {
    const index = (cursor >>> 0) % this.#views.length;
    let view = this.#views[index] as Uint8Array;
    if (view.byteOffset !== this.#memory.byteOffset + addr || view.length !== length) {
      view = this.#memory.subarray(addr, addr + length);
      this.#views[index] = view;
    }
    return view;
  }

  /** A frame to a group waits for nobody. */
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
    if (isAligned && length <= SHORT_FRAME && length + 3 <= this.#slotBytes) {
      const [source, target] = [addr >>> 2, slot >>> 2];
      for (let i = 0; i < (length + 3) >>> 2; i++) this.#words[target + i] = from.#words[source + i] as number;
    } else {
      this.#memory.set(from.#view(cursor, addr, length), slot);
    }
    ring.describe(at, length, 0);
    this.#countArrived(ring, length, 1);
  }

  #acceptRun(from: MemoryLink, tx: RingView, cursor: number, count: number, headers: number): void {
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

  /** The slot for the next frame, to which its descriptor then points. */
  #takeSlot(ring: RingView, at: number): number {
    if (ring.filled === 0) this.#filledSlots = 0;
    const slot = this.#slots[this.#filledSlots++ % this.#slots.length] as number;
    ring.place(at, slot);
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
    // Not unref'd: such an immediate does not keep the event loop from falling asleep before it has run.
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
