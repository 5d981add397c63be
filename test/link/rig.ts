/** A link's view of a card without a card: memory with two rings, and methods that fill and empty them. */
import { ipBytes } from '../../src/base/address.js';
import { type Frames, type Ring, RX_SEGMENT_SHIFT, TX_CONTINUES_BURST } from '../../src/link/frames.js';
import type { Link } from '../../src/link/link.js';
import { RingView } from '../../src/link/ring.js';

export interface Arrived {
  frame: Buffer;
  options: number;
}

export interface RigOptions {
  readonly slots?: number;
  readonly slotBytes?: number;
  readonly memoryBytes?: number;
  readonly icrcOffload?: boolean;
  /** Ignore frames from other addresses than these: for an interface that other tests use at the same time. */
  readonly sources?: readonly string[];
}

export class Rig {
  readonly memory: Uint8Array;
  readonly frames: Frames;
  readonly tx: RingView;
  readonly rx: RingView;
  #allocated = 0;
  readonly #sources: Uint8Array[] | undefined;

  constructor(
    readonly link: Link,
    {
      slots = 64,
      slotBytes = 4608,
      memoryBytes = Math.max(4 * 2 ** 20, slots * (2 * slotBytes + 512)),
      icrcOffload = false,
      sources,
    }: RigOptions = {},
  ) {
    this.#sources = sources?.map(ipBytes);
    const pages = Math.ceil(memoryBytes / 65536);
    this.memory = new Uint8Array(new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true }).buffer);
    const allocate = (bytes: number) => {
      const at = this.#allocated;
      this.#allocated += (bytes + 15) & ~15;
      if (this.#allocated > memoryBytes) throw new RangeError('the rig has no more memory');
      return at;
    };
    allocate(1024);
    const ring = (): Ring => {
      const at = allocate(16 + slots * 16);
      return { producer: at, consumer: at + 8, descriptors: at + 16, mask: slots - 1 };
    };
    this.frames = { memory: this.memory, tx: ring(), rx: ring(), slotBytes, icrcOffload, allocate };
    this.tx = new RingView(this.memory, this.frames.tx);
    this.rx = new RingView(this.memory, this.frames.rx);
    for (const view of [this.tx, this.rx]) for (let i = 0; i < slots; i++) view.setAddr(i, allocate(slotBytes));
    link.attach(this.frames);
  }

  /** Writes frames into the transmit ring. A frame longer than its slot is cut off, but keeps its length. */
  put(...frames: Uint8Array[]): void {
    for (const frame of frames) {
      if (this.tx.free === 0) throw new Error('the transmit ring is full');
      const at = this.tx.producer;
      this.memory.set(frame.subarray(0, this.frames.slotBytes), this.tx.addr(at));
      this.tx.describe(at, frame.length, 0);
      this.tx.producer = at + 1;
    }
  }

  /** Writes frames into the transmit ring as a GSO burst. */
  putBurst(...frames: Uint8Array[]): void {
    frames.forEach((frame, k) => {
      this.put(frame);
      this.tx.describe(this.tx.producer - 1, frame.length, k === 0 ? 0 : TX_CONTINUES_BURST);
    });
  }

  /** Takes all frames from the receive ring. */
  take(): Arrived[] {
    const taken: Arrived[] = [];
    while (this.rx.filled > 0) {
      const at = this.rx.consumer;
      const addr = this.rx.addr(at);
      const frame = Buffer.from(this.memory.slice(addr, addr + this.rx.length(at)));
      if (this.#isHeard(frame)) taken.push({ frame, options: this.rx.options(at) });
      this.rx.consumer = at + 1;
    }
    return taken;
  }

  #isHeard(frame: Buffer): boolean {
    const isFrom = (ip: Uint8Array) =>
      frame
        .subarray(ip.length === 4 ? 26 : 22)
        .subarray(0, ip.length)
        .equals(ip);
    return this.#sources?.some(isFrom) ?? true;
  }

  /** Discards received frames, sends frames, and gathers the same number of frames. */
  async exchange(...frames: Uint8Array[]): Promise<Arrived[]> {
    while (this.link.receive(0) > 0) this.take();
    this.put(...frames);
    this.link.send(0);
    return await this.gather(frames.length);
  }

  /** Receives until `count` frames have arrived or the time is over. */
  async gather(count: number, timeoutMs = 2000): Promise<Arrived[]> {
    const all: Arrived[] = [];
    const end = performance.now() + timeoutMs;
    while (all.length < count && performance.now() < end) {
      this.link.receive(performance.now() * 1e6);
      all.push(...this.take());
      if (all.length < count)
        await new Promise<void>((resolve) =>
          this.link.wait(Math.min(end, performance.now() + 20) * 1e6, true, resolve),
        );
    }
    return all;
  }
}

/** Slots that can hold a super-packet. */
export const LARGE_SLOTS = { slotBytes: 65600 } as const;

/** Returns the UDP payloads of a frame or super-packet. */
export function payloadsOf({ frame, options }: Arrived): Buffer[] {
  const ip = frame.readUInt16BE(12) === 0x8100 ? 18 : 14;
  const payload = frame.subarray(ip + (frame.readUInt16BE(ip - 2) === 0x86dd ? 48 : 28));
  const bytes = options >>> RX_SEGMENT_SHIFT || payload.length;
  return Array.from({ length: Math.ceil(payload.length / bytes) }, (_, k) =>
    payload.subarray(k * bytes, (k + 1) * bytes),
  );
}

export interface FrameFields {
  source: string;
  destination: string;
  destMac?: number[];
  srcMac?: number[];
  id?: number;
  trafficClass?: number;
  ttl?: number;
  sourcePort?: number;
  destinationPort?: number;
  vlan?: number;
  payload?: Uint8Array;
}

/** An Ethernet frame with a UDP datagram, written from the RFCs and not by the code under test. IPv4 texts are dotted;
 * IPv6 texts are eight groups. */
export function udpFrame(fields: FrameFields): Buffer {
  const { source, destination, id = 0, trafficClass = 0, ttl = 64, payload = Buffer.from('hello') } = fields;
  const { destMac = [2, 0, 0, 0, 0, 2], srcMac = [2, 0, 0, 0, 0, 1] } = fields;
  const isIpv6 = source.includes(':');
  const tag = fields.vlan === undefined ? [] : [0x81, 0, fields.vlan >> 8, fields.vlan & 255];
  const ethernet = Buffer.from([...destMac, ...srcMac, ...tag, ...(isIpv6 ? [0x86, 0xdd] : [8, 0])]);
  const udp = Buffer.alloc(8);
  udp.writeUInt16BE(fields.sourcePort ?? 49152, 0);
  udp.writeUInt16BE(fields.destinationPort ?? 4791, 2);
  udp.writeUInt16BE(8 + payload.length, 4);
  const ip = Buffer.alloc(isIpv6 ? 40 : 20);
  if (isIpv6) {
    ip.writeUInt32BE((0x60000000 | (trafficClass << 20)) >>> 0, 0);
    ip.writeUInt16BE(udp.length + payload.length, 4);
    ip[6] = 17;
    ip[7] = ttl;
    for (const [at, text] of [
      [8, source],
      [24, destination],
    ] as const)
      text.split(':').forEach((group, i) => {
        ip.writeUInt16BE(Number.parseInt(group, 16), at + 2 * i);
      });
  } else {
    ip[0] = 0x45;
    ip[1] = trafficClass;
    ip.writeUInt16BE(28 + payload.length, 2);
    ip.writeUInt16BE(id, 4);
    ip.writeUInt16BE(0x4000, 6);
    ip[8] = ttl;
    ip[9] = 17;
    ip.set(source.split('.').map(Number), 12);
    ip.set(destination.split('.').map(Number), 16);
    ip.writeUInt16BE(ipChecksum(ip), 10);
  }
  return Buffer.concat([ethernet, ip, udp, payload]);
}

/** Returns the checksum (RFC 1071) of a header including its checksum field: 0 if it is correct. */
export function ipChecksum(header: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < header.length; i += 2) sum += ((header[i] as number) << 8) | (header[i + 1] as number);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}
