/** The trace of a device: a ring with the headers of its last frames, to show what happened before a failure. */

import { segmentBytes, udpPayloadOffset } from '../link/gso.js';
import { spanElsewhere } from '../link/icrcspan.js';
import { RingView } from '../link/ring.js';
import type { Card } from './card.js';
import { REGION_SPAN, type Regions } from './regions.js';

/** Bytes kept of each frame: Ethernet with a tag, IPv6, UDP, and the longest transport headers. */
const SNAP_BYTES = 112;

/** A frame that the device has sent or received. */
export interface TracedFrame {
  /** The start of the frame with all headers. */
  readonly bytes: Uint8Array;
  /** Bytes of the whole frame. */
  readonly length: number;
  /** Whether the device sent the frame. */
  readonly sent: boolean;
  /** Time on the device's clock (ns). */
  readonly at: number;
}

/** Records frames. One thread records; other threads that have the same memory may read. */
export class Trace {
  readonly #count: Uint32Array;
  readonly #at: Float64Array;
  /** Bytes of each frame, and whether the device sent it. */
  readonly #length: Uint32Array;
  readonly #sent: Uint8Array;
  readonly #bytes: Uint8Array;
  readonly #memory: Uint8Array;
  readonly #regions: Regions;
  readonly #tx: RingView;
  readonly #rx: RingView;
  #txSeen: number;
  #rxSeen: number;

  /**
   * @param capacity number of frames that are kept
   * @param shared memory of another Trace of the same capacity, which then has the same frames. Default: new
   */
  constructor(
    card: Card,
    readonly capacity: number,
    readonly shared = new SharedArrayBuffer(8 + capacity * (SNAP_BYTES + 8 + 4 + 1)),
  ) {
    const { memory, tx, rx } = card.frames;
    this.#memory = memory;
    this.#regions = card.regions;
    this.#tx = new RingView(memory, tx);
    this.#rx = new RingView(memory, rx);
    this.#txSeen = this.#tx.producer;
    this.#rxSeen = this.#rx.producer;
    let at = 8;
    const next = (bytes: number) => {
      at += bytes;
      return at - bytes;
    };
    this.#count = new Uint32Array(shared, 0, 1);
    this.#at = new Float64Array(shared, next(8 * capacity), capacity);
    this.#length = new Uint32Array(shared, next(4 * capacity), capacity);
    this.#sent = new Uint8Array(shared, next(capacity), capacity);
    this.#bytes = new Uint8Array(shared, next(SNAP_BYTES * capacity), SNAP_BYTES * capacity);
  }

  /** Records frames that the link has put into the receive ring. Call it before the card consumes them. */
  recordReceived(now: number): void {
    this.#rxSeen = this.#record(this.#rx, this.#rxSeen, now, 0);
  }

  /** Records frames that the card has put into the transmit ring. Call it before the link consumes them. */
  recordSent(now: number): void {
    this.#txSeen = this.#record(this.#tx, this.#txSeen, now, 1);
  }

  /** Returns the kept frames, oldest first. */
  frames(): TracedFrame[] {
    const found: TracedFrame[] = [];
    const count = this.#count[0] as number;
    for (let n = Math.max(0, count - this.capacity); n < count; n++) {
      const i = n % this.capacity;
      const start = i * SNAP_BYTES;
      const length = this.#length[i] as number;
      const bytes = this.#bytes.slice(start, start + Math.min(length, SNAP_BYTES));
      found.push({ bytes, length, sent: this.#sent[i] === 1, at: this.#at[i] as number });
    }
    return found;
  }

  #record(ring: RingView, seen: number, now: number, sent: number): number {
    const { producer } = ring;
    for (let n = seen; n !== producer; n = (n + 1) >>> 0) {
      const [from, length, options] = [ring.addr(n), ring.length(n), ring.options(n)];
      if (sent) this.#recordOutgoing(from, length, options, now);
      else this.#recordIncoming(from, length, options, now);
    }
    return producer;
  }

  /** Records a frame of the card. The link may not have fetched the ICRC span yet. */
  #recordOutgoing(from: number, length: number, options: number, now: number): void {
    const { offset, address } = spanElsewhere(this.#memory, from, length, options) ?? { offset: 0, address: from };
    const headers = Math.min(offset, SNAP_BYTES);
    this.#recordFrame(from, headers, address, length - headers, now, 1);
  }

  /** Records a frame of the link: each packet of a super-packet with the headers of the super-packet. */
  #recordIncoming(from: number, length: number, options: number, now: number): void {
    const segment = segmentBytes(options);
    if (segment === 0) {
      this.#recordFrame(from, 0, from, length, now, 0);
      return;
    }
    const headers = Math.min(udpPayloadOffset(this.#memory, from), length);
    for (let at = headers; at < length; at += segment)
      this.#recordFrame(from, headers, from + at, Math.min(segment, length - at), now, 0);
  }

  /** Records a frame: `headers` bytes at `from`, then `restBytes` at the place `rest`. */
  #recordFrame(from: number, headers: number, rest: number, restBytes: number, now: number, sent: number): void {
    const count = this.#count[0] as number;
    this.#count[0] = count + 1;
    const i = count % this.capacity;
    const start = i * SNAP_BYTES;
    this.#bytes.set(this.#memory.subarray(from, from + headers), start);
    const kept = Math.min(restBytes, SNAP_BYTES - headers);
    const into = this.#bytes.subarray(start + headers, start + headers + kept);
    if (rest < REGION_SPAN) into.set(this.#memory.subarray(rest, rest + kept));
    else if (!this.#regions.read(rest, into)) into.fill(0);
    this.#at[i] = now;
    this.#length[i] = headers + restBytes;
    this.#sent[i] = sent;
  }
}
