/** What a fault link does with frames, in whatever thread moves them: each meets its fate between two rings. */
import type { FaultOptions } from './fault.js';
import { FATES, FaultPath } from './faultpath.js';
import type { FrameMover, Frames, Ring } from './link.js';
import { RingView } from './ring.js';

/** What a fault link is made from, beside its inner link; plain data. */
export interface FaultPlan {
  readonly options: FaultOptions;
  /** The card's rings. */
  readonly outer: Pick<Frames, 'tx' | 'rx' | 'slotBytes'>;
  /** Those of the inner link. */
  readonly tx: Ring;
  readonly rx: Ring;
  /** Frames that met each fate, f64 each: of the way out, then of the way in. */
  readonly counts: SharedArrayBuffer;
}

export const COUNTS_BYTES = 2 * 8 * FATES.length;
/** How soon to offer the inner link again what it did not take (ns). */
const RETRY_SEND = 100_000;

export class FaultMover implements FrameMover {
  readonly #tx: FaultPath;
  readonly #rx: FaultPath;
  #innerTx: RingView | undefined;
  #now = 0;

  /** @throws RangeError for a probability outside 0 to 1, or delays that are none */
  constructor(
    { seed = 1, both, tx, rx }: FaultOptions,
    counts: SharedArrayBuffer,
    readonly inner: FrameMover,
  ) {
    if (!Number.isSafeInteger(seed)) throw new RangeError(`seed ${seed} is not an integer`);
    const [out, back] = [0, COUNTS_BYTES / 2].map((at) => new Float64Array(counts, at, FATES.length));
    // One sequence for each direction, so that what arrives does not change what is sent.
    this.#tx = new FaultPath({ ...both, ...tx }, 2 * seed, out as Float64Array);
    this.#rx = new FaultPath({ ...both, ...rx }, 2 * seed + 1, back as Float64Array);
  }

  join(memory: Uint8Array, { outer, tx, rx }: FaultPlan): this {
    this.#innerTx = new RingView(memory, tx);
    const room = { memory, slotBytes: outer.slotBytes };
    this.#tx.join(room, new RingView(memory, outer.tx), this.#innerTx);
    this.#rx.join(room, new RingView(memory, rx), new RingView(memory, outer.rx));
    return this;
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

  nextDeadline(): number {
    const retry = this.#innerTx?.filled ? this.#now + RETRY_SEND : 0;
    const deadlines = [this.inner.nextDeadline(), this.#tx.nextDeadline, this.#rx.nextDeadline, retry];
    return deadlines.reduce((a, b) => (a === 0 || (b !== 0 && b < a) ? b : a), 0);
  }
}
