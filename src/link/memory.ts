/**
 * The `memory` link: cards of one process, joined by a hub. Needs neither privileges nor the addon, and does nothing on
 * its own: a frame is in the peer's receive ring when `send` returns, so tests may drive cards in virtual time.
 */
import { VerbsError } from '../errors.js';
import { ipBytes, ipText, isMulticast, macBytes, macText } from './address.js';
import {
  type Frames,
  type Link,
  type LinkCounters,
  type LinkFeatures,
  type LinkInterface,
  type Resolved,
  RX_SEGMENT_SHIFT,
} from './link.js';
import { RingView } from './ring.js';
import { runLength, udpPayloadOffset } from './runs.js';

const ETHERNET_BYTES = 14;
const DEFAULT_MTU = 4500;
const NOBODY: ReadonlySet<MemoryLink> = new Set();
/** What the kernel sends in one go (UDP_SEGMENT): segments, and bytes of UDP payload over IPv4. */
const RUNS = { packets: 64, bytes: 65507 } as const;
/** In front of them: Ethernet with a tag, IPv6, UDP. */
const MOST_HEADER_BYTES = 66;
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

export interface MemoryHubOptions {
  /** Runs of packets arrive as super-packets, as they do behind the kernel's segmentation offload. Default false. */
  readonly coalesce?: boolean;
}

/** Where frames go from card to card. Made by `createMemoryHub`. */
export class MemoryHub {
  readonly coalesces: boolean;
  readonly #links = new Set<MemoryLink>();
  readonly #byMac = new Map<number, MemoryLink>();
  readonly #byIp = new Map<string, MemoryLink>();
  readonly #groups = new Map<string, Set<MemoryLink>>();
  #opened = 0;

  constructor({ coalesce = false }: MemoryHubOptions = {}) {
    this.coalesces = coalesce;
  }

  get links(): ReadonlySet<MemoryLink> {
    return this.#links;
  }

  /** @returns a number for the next link's name and MAC */
  nextNumber(): number {
    return this.#opened++;
  }

  /** @throws VerbsError EADDRINUSE */
  join(link: MemoryLink): void {
    const { mac, addresses } = link.interface;
    if (this.#byMac.has(macKey(mac, 0)))
      throw new VerbsError('EADDRINUSE', `a card of the hub has the MAC ${macText(mac)} already`);
    const taken = addresses.find((address) => this.#byIp.has(address));
    if (taken) throw new VerbsError('EADDRINUSE', `a card of the hub has the address ${taken} already`);
    this.#links.add(link);
    this.#byMac.set(macKey(mac, 0), link);
    for (const address of addresses) this.#byIp.set(address, link);
  }

  leave(link: MemoryLink): void {
    if (!this.#links.delete(link)) return;
    this.#byMac.delete(macKey(link.interface.mac, 0));
    for (const address of link.interface.addresses) this.#byIp.delete(address);
    for (const other of this.#links) other.unblock(link);
    for (const group of this.#groups.keys()) this.leaveGroup(group, link);
  }

  /** @param group as `ipText` writes it */
  joinGroup(group: string, link: MemoryLink): void {
    const members = this.#groups.get(group) ?? new Set();
    this.#groups.set(group, members.add(link));
  }

  leaveGroup(group: string, link: MemoryLink): void {
    const members = this.#groups.get(group);
    members?.delete(link);
    if (members?.size === 0) this.#groups.delete(group);
  }

  /** Those whom a frame to a group is for; undefined when it goes to no group. */
  members(memory: Uint8Array, addr: number, length: number): ReadonlySet<MemoryLink> | undefined {
    if (length < ETHERNET_BYTES || ((memory[addr] as number) & 1) === 0) return undefined;
    const address = destinationIp(memory, addr, length);
    if (!address || !isMulticast(address)) return undefined;
    return this.#groups.get(ipText(address)) ?? NOBODY;
  }

  /** @param address as `ipText` writes it */
  owner(address: string): MemoryLink | undefined {
    return this.#byIp.get(address);
  }

  /** Whom a frame is for: by its destination MAC, or else by its destination IP address. */
  destination(memory: Uint8Array, addr: number, length: number): MemoryLink | undefined {
    if (length < ETHERNET_BYTES) return undefined;
    const link = this.#byMac.get(macKey(memory, addr));
    if (link) return link;
    const address = destinationIp(memory, addr, length);
    return address && this.#byIp.get(ipText(address));
  }
}

export function createMemoryHub(options?: MemoryHubOptions): MemoryHub {
  return new MemoryHub(options);
}

/** @throws TypeError for what is no address, VerbsError EADDRINUSE */
export function memoryLink(hub: MemoryHub, options: MemoryLinkOptions): MemoryLink {
  return new MemoryLink(hub, options);
}

export class MemoryLink implements Link {
  readonly kind = 'memory';
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
    this.#memory = frames.memory;
    this.#slotBytes = frames.slotBytes;
    this.#takesRuns = frames.slotBytes >= (this.features.coalescedBytes ?? Number.POSITIVE_INFINITY);
    this.#tx = new RingView(frames.memory, frames.tx);
    this.#rx = new RingView(frames.memory, frames.rx);
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
      for (const member of members) member.#acceptIfRoom(this.#memory, addr, length);
      this.#countSent(length, 1);
      return 1;
    }
    const peer = this.#hub.destination(this.#memory, addr, length);
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
    peer.#accept(this.#memory, addr, length);
    this.#countSent(length, 1);
    return 1;
  }

  /** Sends a run as one super-packet, if its receiver is one whose slots hold that. @returns how many frames have gone */
  #sendRun(ring: RingView, cursor: number, count: number): number {
    const [addr, length] = [ring.addr(cursor), ring.length(cursor)];
    const headers = udpPayloadOffset(this.#memory, addr);
    const peer = this.#hub.destination(this.#memory, addr, length);
    if (peer === undefined || peer.#rx === undefined || peer.#rx.free === 0 || !peer.#takesRuns) {
      let sent = 0;
      while (sent < count && this.#sendOne(ring, cursor + sent) === 1) sent++;
      return sent;
    }
    peer.#acceptRun(this.#memory, ring, cursor, count, headers);
    this.#countSent((count - 1) * length + ring.length(cursor + count - 1), count);
    return count;
  }

  #countSent(bytes: number, frames: number): void {
    this.#counters.tx_frames += frames;
    this.#counters.tx_bytes += bytes;
  }

  /** A frame to a group waits for nobody. */
  #acceptIfRoom(from: Uint8Array, addr: number, length: number): void {
    if (this.#rx !== undefined && this.#rx.free > 0 && length <= this.#slotBytes) this.#accept(from, addr, length);
    else this.#counters.rx_dropped++;
  }

  #accept(from: Uint8Array, addr: number, length: number): void {
    const ring = this.#rx as RingView;
    const at = ring.producer;
    this.#memory.set(from.subarray(addr, addr + length), ring.addr(at));
    ring.describe(at, length, 0);
    this.#countArrived(ring, length, 1);
  }

  #acceptRun(from: Uint8Array, tx: RingView, cursor: number, count: number, headers: number): void {
    const ring = this.#rx as RingView;
    const slot = ring.addr(ring.producer);
    const segment = tx.length(cursor) - headers;
    let end = slot + headers;
    this.#memory.set(from.subarray(tx.addr(cursor), tx.addr(cursor) + headers), slot);
    for (let i = 0; i < count; i++) {
      const addr = tx.addr(cursor + i);
      const length = tx.length(cursor + i);
      this.#memory.set(from.subarray(addr + headers, addr + length), end);
      end += length - headers;
    }
    ring.describe(ring.producer, end - slot, segment << RX_SEGMENT_SHIFT);
    this.#countArrived(ring, end - slot + (count - 1) * headers, count);
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

/** 48 bits as a number. */
function macKey(bytes: Uint8Array, at: number): number {
  let key = 0;
  for (let i = 0; i < 6; i++) key = key * 256 + (bytes[at + i] as number);
  return key;
}

function destinationIp(memory: Uint8Array, addr: number, length: number): Uint8Array | undefined {
  const word = (at: number) => ((memory[addr + at] as number) << 8) | (memory[addr + at + 1] as number);
  const isTagged = word(12) === 0x8100;
  const ip = isTagged ? 18 : 14;
  const type = word(ip - 2);
  if (type === 0x0800 && length >= ip + 20) return memory.slice(addr + ip + 16, addr + ip + 20);
  if (type === 0x86dd && length >= ip + 40) return memory.slice(addr + ip + 24, addr + ip + 40);
  return undefined;
}
