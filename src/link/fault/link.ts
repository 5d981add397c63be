/**
 * The fault link wraps any link and drops, duplicates, reorders, delays, corrupts or marks frames with given
 * probabilities. The same seed and the same calls give the same faults.
 *
 * The link has rings of its own in the card's memory. It copies every frame between the card's rings and these; the
 * inner link works on these.
 */

import { invalidType } from '../../errors.js';
import type { Frames, Link, LinkCounters } from '../link.js';
import { allocateRing } from '../ring.js';
import { type LinkTransfer, transferLink } from '../transfer.js';
import { LinkWrapper } from '../wrapper.js';
import { COUNTS_BYTES, FaultMover, type FaultPlan } from './mover.js';
import { FAULTS } from './path.js';

/** Probabilities of faults in one direction. Each is 0 to 1, default 0. */
export interface FaultRates {
  /** Probability that a frame is lost. */
  readonly drop?: number;
  /** Probability that a frame is delivered twice. */
  readonly duplicate?: number;
  /** Probability that up to four later frames overtake a frame. */
  readonly reorder?: number;
  /** Probability that a frame is delayed by a random time within `delayNs`. */
  readonly delay?: number;
  /** Minimum and maximum of a delay in nanoseconds. Default: 10,000 to 100,000 (10 to 100 µs). */
  readonly delayNs?: readonly [number, number];
  /** Probability that one bit after the Ethernet header is flipped. */
  readonly corrupt?: number;
  /**
   * Probability that a frame is marked "congestion experienced" (ECN), as a switch does, with a correct IPv4 checksum.
   */
  readonly ecn?: number;
}

/**
 * Faults that a device adds to its link, to test how an application copes with them.
 * @example
 * const device = await openDevice({ interface: 'eth0', fault: { seed: 7, both: { drop: 0.01 } } });
 */
export interface FaultOptions {
  /** Seed of the random numbers, any integer. Default: 1. */
  readonly seed?: number;
  /** Faults in both directions. A rate in `tx` or `rx` replaces the same rate here. */
  readonly both?: FaultRates;
  /** Faults of frames that the card sends. */
  readonly tx?: FaultRates;
  /** Faults of frames that the card receives. */
  readonly rx?: FaultRates;
}

/** Wraps a link in a fault link. @throws RangeError for a probability outside 0 to 1, an invalid delay or seed */
export function faultLink(inner: Link, options: FaultOptions): FaultLink {
  return new FaultLink(inner, options);
}

/** A link that adds faults to another link. */
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

  /** @throws TypeError without `Frames.allocate`; RangeError if the card has not enough memory left */
  attach(frames: Frames): void {
    if (!frames.allocate) throw invalidType('the fault link needs Frames.allocate for its own rings');
    const tx = allocateRing(frames, frames.tx.mask + 1);
    const rx = allocateRing(frames, frames.rx.mask + 1);
    const card = { tx: frames.tx, rx: frames.rx, slotBytes: frames.slotBytes };
    this.#plan = { options: this.options, card, tx, rx, counts: this.#counts };
    this.#mover.attach(frames.memory, this.#plan);
    this.attachInner({ ...frames, tx, rx });
  }

  transfer(): LinkTransfer {
    const inner = transferLink(this.inner);
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

  /** Adds `fault_tx_drop`, `fault_rx_delay` and so on: the number of frames with each fault in each direction. */
  override counters(): LinkCounters {
    const counters: Record<string, number> = { ...this.inner.counters() };
    const names = ['tx', 'rx'].flatMap((direction) => FAULTS.map((fault) => `fault_${direction}_${fault}`));
    for (const [i, count] of new Float64Array(this.#counts).entries()) counters[names[i] as string] = count;
    return counters;
  }
}
