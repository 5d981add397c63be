/**
 * Trouble, as a wrapper around any link: frames are lost, doubled, reordered, delayed, damaged or marked, as often as
 * asked for, and the same way again for the same seed and the same calls.
 *
 * The wrapper has rings of its own in the card's memory; every frame is copied from the card's ring to the link's, or
 * back, and meets its fate in between.
 */

import { COUNTS_BYTES, FaultMover, type FaultPlan } from './faultmover.js';
import { FATES } from './faultpath.js';
import type { Frames, Link, LinkCounters, Ring } from './link.js';
import { type Loan, lendLink } from './loan.js';
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

/** @throws RangeError for a probability outside 0 to 1, or delays that are none */
export function faultLink(inner: Link, options: FaultOptions): FaultLink {
  return new FaultLink(inner, options);
}

export class FaultLink extends LinkWrapper {
  readonly #counts = new SharedArrayBuffer(COUNTS_BYTES);
  readonly #mover: FaultMover;
  #plan: FaultPlan | undefined;

  constructor(
    inner: Link,
    readonly options: FaultOptions,
  ) {
    super(inner);
    this.#mover = new FaultMover(options, this.#counts, inner);
  }

  /** @throws TypeError when the card does not lend memory for rings */
  attach(frames: Frames): void {
    if (!frames.allocate) throw new TypeError('a fault link needs Frames.allocate, for rings of its own');
    const tx = makeRing(frames, frames.tx.mask + 1);
    const rx = makeRing(frames, frames.rx.mask + 1);
    const outer = { tx: frames.tx, rx: frames.rx, slotBytes: frames.slotBytes };
    this.#plan = { options: this.options, outer, tx, rx, counts: this.#counts };
    this.#mover.join(frames.memory, this.#plan);
    this.attachInner({ ...frames, tx, rx });
  }

  lend(): Loan {
    const inner = lendLink(this.inner);
    return { kind: 'fault', inner, fd: inner.fd, plan: this.#plan as FaultPlan };
  }

  send(now: number): number {
    return this.#mover.send(now);
  }

  receive(now: number): number {
    return this.#mover.receive(now);
  }

  override nextDeadline(): number {
    return this.#mover.nextDeadline();
  }

  /** The inner link's, and `fault_tx_drop`, `fault_rx_delay` and so on: frames that met each fate. */
  override counters(): LinkCounters {
    const counters: Record<string, number> = { ...this.inner.counters() };
    const names = ['tx', 'rx'].flatMap((direction) => FATES.map((fate) => `fault_${direction}_${fate}`));
    for (const [i, count] of new Float64Array(this.#counts).entries()) counters[names[i] as string] = count;
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
