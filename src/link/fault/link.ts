/**
 * The fault link wraps any link and drops, duplicates, reorders, delays, corrupts or marks frames with given
 * probabilities. The same seed and the same calls give the same faults.
 *
 * The link has rings of its own in the card's memory. It copies every frame between the card's rings and these; the
 * inner link works on these.
 */

import { invalidType } from '../../errors.js';
import type { Frames } from '../frames.js';
import type { Link, LinkCounters } from '../link.js';
import { allocateRing } from '../ring.js';
import { type LinkTransfer, transferLink } from '../transfer.js';
import { LinkWrapper } from '../wrapper.js';
import { COUNTS_BYTES, FaultMover, type FaultPlan } from './mover.js';
import type { FaultOptions } from './options.js';
import { FAULTS } from './path.js';

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
