/** The last frames of a device: a ring of their headers, for those who want to know what happened before a failure. */
import { RingView } from '../link/ring.js';
import { segmentBytes, udpPayloadOffset } from '../link/runs.js';
import type { Card } from './card.js';

/** Enough for Ethernet with a tag, IPv6, UDP, and the longest headers of the transport. */
const KEPT_BYTES = 112;

/** A frame that came or went. */
export interface TracedFrame {
  /** Its start: all headers. */
  readonly bytes: Uint8Array;
  /** Bytes of the whole frame. */
  readonly length: number;
  /** It left this device. */
  readonly sent: boolean;
  /** Nanoseconds of the device's clock. */
  readonly at: number;
}

/** One thread keeps; with the same memory another may look. */
export class Trace {
  readonly #count: Uint32Array;
  readonly #at: Float64Array;
  /** Bytes of the frame, and which way it went. */
  readonly #length: Uint32Array;
  readonly #sent: Uint8Array;
  readonly #bytes: Uint8Array;
  readonly #memory: Uint8Array;
  readonly #tx: RingView;
  readonly #rx: RingView;
  #txSeen: number;
  #rxSeen: number;

  /**
   * @param capacity frames that are kept
   * @param shared another's, of the same capacity, to look at what that keeps or to keep for it; by default new
   */
  constructor(
    card: Card,
    readonly capacity: number,
    readonly shared = new SharedArrayBuffer(8 + capacity * (KEPT_BYTES + 8 + 4 + 1)),
  ) {
    const { memory, tx, rx } = card.frames;
    this.#memory = memory;
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
    this.#bytes = new Uint8Array(shared, next(KEPT_BYTES * capacity), KEPT_BYTES * capacity);
  }

  /** To be called when the link has put frames into the receive ring, before the card takes them. */
  received(now: number): void {
    this.#rxSeen = this.#keep(this.#rx, this.#rxSeen, now, 0);
  }

  /** To be called when the card has put frames into the transmit ring, before the link takes them. */
  sent(now: number): void {
    this.#txSeen = this.#keep(this.#tx, this.#txSeen, now, 1);
  }

  /** What is kept, oldest first. */
  frames(): TracedFrame[] {
    const found: TracedFrame[] = [];
    const count = this.#count[0] as number;
    for (let n = Math.max(0, count - this.capacity); n < count; n++) {
      const i = n % this.capacity;
      const start = i * KEPT_BYTES;
      const length = this.#length[i] as number;
      const bytes = this.#bytes.slice(start, start + Math.min(length, KEPT_BYTES));
      found.push({ bytes, length, sent: this.#sent[i] === 1, at: this.#at[i] as number });
    }
    return found;
  }

  #keep(ring: RingView, seen: number, now: number, sent: number): number {
    const { producer } = ring;
    for (let n = seen; n !== producer; n = (n + 1) >>> 0) {
      const from = ring.addr(n);
      const length = ring.length(n);
      const segment = sent ? 0 : segmentBytes(ring.options(n));
      if (segment === 0) this.#keepOne(from, 0, from, length, now, sent);
      else this.#keepSegments(from, length, segment, now);
    }
    return producer;
  }

  /** The packets of a super-packet, each with the headers that stand for all. */
  #keepSegments(from: number, length: number, segment: number, now: number): void {
    const headers = Math.min(udpPayloadOffset(this.#memory, from), length);
    for (let at = headers; at < length; at += segment)
      this.#keepOne(from, headers, from + at, Math.min(segment, length - at), now, 0);
  }

  /** Keeps `headers` bytes at `from`, and the rest of the frame, which lies at `rest`. */
  #keepOne(from: number, headers: number, rest: number, restBytes: number, now: number, sent: number): void {
    const count = this.#count[0] as number;
    this.#count[0] = count + 1;
    const i = count % this.capacity;
    const start = i * KEPT_BYTES;
    this.#bytes.set(this.#memory.subarray(from, from + headers), start);
    const kept = Math.min(restBytes, KEPT_BYTES - headers);
    this.#bytes.set(this.#memory.subarray(rest, rest + kept), start + headers);
    this.#at[i] = now;
    this.#length[i] = headers + restBytes;
    this.#sent[i] = sent;
  }
}
