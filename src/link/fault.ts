/**
 * Trouble, as a wrapper around any link: frames are lost, doubled, reordered, delayed, damaged or marked, as often as
 * asked for, and the same way again for the same seed and the same calls.
 *
 * The wrapper has rings of its own in the card's memory; every frame is copied from the card's ring to the link's, or
 * back, and meets its fate in between.
 */

import { FaultPath } from './faultpath.js';
import type { Frames, Link, LinkCounters, Ring } from './link.js';
import { DESCRIPTOR_BYTES, RingView } from './ring.js';
import { LinkWrapper } from './wrapper.js';

/** Probabilities, 0 to 1, of what happens to a frame in one direction. */
export interface FaultRates {
  /** The frame is lost. */
  readonly drop?: number;
  /** The frame comes twice. */
  readonly duplicate?: number;
  /** Up to four later frames overtake it. */
  readonly reorder?: number;
  /** The frame comes later by a time out of `delayNs`. */
  readonly delay?: number;
  /** Least and most nanoseconds of a delay; 10 to 100 µs by default. */
  readonly delayNs?: readonly [number, number];
  /** One bit behind the Ethernet header is flipped. */
  readonly corrupt?: number;
  /** The frame is marked "congestion experienced", as a switch would; the IPv4 checksum is put right. */
  readonly ecn?: number;
}

export interface FaultOptions {
  /** Any integer; 1 by default. */
  readonly seed?: number;
  /** What holds for both directions; `tx` and `rx` go before it. */
  readonly both?: FaultRates;
  /** What befalls frames on the way from the card to the network. */
  readonly tx?: FaultRates;
  /** What befalls frames on the way from the network to the card. */
  readonly rx?: FaultRates;
}

const CURSOR_BYTES = 64;
const ALIGNMENT = 64;
/** How soon to offer the inner link again what it did not take (ns). */
const RETRY_SEND = 100_000;

/** @throws RangeError for a probability outside 0 to 1, or delays that are none */
export function faultLink(inner: Link, options: FaultOptions): FaultLink {
  return new FaultLink(inner, options);
}

export class FaultLink extends LinkWrapper {
  readonly #tx: FaultPath;
  readonly #rx: FaultPath;
  #innerTx: RingView | undefined;
  #now = 0;

  constructor(inner: Link, { seed = 1, both, tx, rx }: FaultOptions) {
    super(inner);
    if (!Number.isSafeInteger(seed)) throw new RangeError(`seed ${seed} is not an integer`);
    // One sequence for each direction, so that what arrives does not change what is sent.
    this.#tx = new FaultPath({ ...both, ...tx }, 2 * seed);
    this.#rx = new FaultPath({ ...both, ...rx }, 2 * seed + 1);
  }

  /** @throws TypeError when the card does not lend memory for rings */
  attach(frames: Frames): void {
    if (!frames.allocate) throw new TypeError('a fault link needs Frames.allocate, for rings of its own');
    const tx = makeRing(frames, frames.tx.mask + 1);
    const rx = makeRing(frames, frames.rx.mask + 1);
    this.#innerTx = new RingView(frames.memory, tx);
    this.#tx.join(frames, new RingView(frames.memory, frames.tx), this.#innerTx);
    this.#rx.join(frames, new RingView(frames.memory, rx), new RingView(frames.memory, frames.rx));
    this.attachInner({ ...frames, tx, rx });
  }

  send(now: number): number {
    this.#now = now;
    const taken = this.#tx.pump(now);
    this.inner.send(now);
    return taken;
  }

  /** Also lets go what was held back on the way out: nobody calls `send` for a card that has nothing to send. */
  receive(now: number): number {
    this.#now = now;
    this.#tx.release(now);
    if (this.#innerTx?.filled) this.inner.send(now);
    this.inner.receive(now);
    return this.#rx.release(now) + this.#rx.pump(now);
  }

  override nextDeadline(): number {
    const retry = this.#innerTx?.filled ? this.#now + RETRY_SEND : 0;
    const deadlines = [this.inner.nextDeadline(), this.#tx.nextDeadline, this.#rx.nextDeadline, retry];
    return deadlines.reduce((a, b) => (a === 0 || (b !== 0 && b < a) ? b : a), 0);
  }

  /** The inner link's, and `fault_tx_drop`, `fault_rx_delay` and so on: frames that met each fate. */
  override counters(): LinkCounters {
    const counters: Record<string, number> = { ...this.inner.counters() };
    for (const [direction, path] of Object.entries({ tx: this.#tx, rx: this.#rx }))
      for (const [name, count] of Object.entries(path.counts)) counters[`fault_${direction}_${name}`] = count;
    return counters;
  }
}

/** A ring with slots of its own, in the card's memory. */
function makeRing({ memory, slotBytes, allocate }: Frames, count: number): Ring {
  const slotStride = Math.ceil(slotBytes / ALIGNMENT) * ALIGNMENT;
  const slots = 2 * CURSOR_BYTES + count * DESCRIPTOR_BYTES;
  const start = allocate?.(slots + count * slotStride + 2 * ALIGNMENT) as number;
  const at = Math.ceil(start / ALIGNMENT) * ALIGNMENT;
  const ring = { producer: at, consumer: at + CURSOR_BYTES, descriptors: at + 2 * CURSOR_BYTES, mask: count - 1 };
  memory.fill(0, at, at + slots);
  const view = new RingView(memory, ring);
  const firstSlot = Math.ceil((at + slots) / ALIGNMENT) * ALIGNMENT;
  for (let i = 0; i < count; i++) view.place(i, firstSlot + i * slotStride);
  return ring;
}
