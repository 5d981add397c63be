/** The mover of the fault link: one `FaultPath` for each direction. Runs in the mover's thread. */

import { outOfRange } from '../../errors.js';
import type { FrameMover, Frames, Ring } from '../frames.js';
import { RingView } from '../ring.js';
import type { FaultOptions } from './options.js';
import { FAULTS, FaultPath } from './path.js';

/** Parameters of a `FaultMover`, beside its inner mover. Plain data, so that another thread can make one. */
export interface FaultPlan {
  readonly options: FaultOptions;
  /** The card's rings. */
  readonly card: Pick<Frames, 'tx' | 'rx' | 'slotBytes'>;
  /** The inner link's rings. */
  readonly tx: Ring;
  readonly rx: Ring;
  /** The number of frames with each fault, in the order of `FAULTS`, f64 each: transmit direction, then receive. */
  readonly counts: SharedArrayBuffer;
}

/** Bytes of `FaultPlan.counts`. */
export const COUNTS_BYTES = 2 * 8 * FAULTS.length;
/** Delay before frames that the inner link has not taken are offered again (ns). */
const SEND_RETRY_NS = 100_000;

/** Moves frames by an inner mover and adds faults. */
export class FaultMover implements FrameMover {
  readonly #tx: FaultPath;
  readonly #rx: FaultPath;
  #innerTx: RingView | undefined;
  #now = 0;

  /** @throws RangeError for a probability outside 0 to 1, an invalid delay or seed */
  constructor(
    { seed = 1, both, tx, rx }: FaultOptions,
    counts: SharedArrayBuffer,
    readonly inner: FrameMover,
  ) {
    if (!Number.isSafeInteger(seed)) throw outOfRange(`seed ${seed} is not an integer`);
    const [outbound, inbound] = [0, COUNTS_BYTES / 2].map((at) => new Float64Array(counts, at, FAULTS.length));
    // One random sequence for each direction, so that received frames do not change the faults of sent frames.
    this.#tx = new FaultPath({ ...both, ...tx }, 2 * seed, outbound as Float64Array);
    this.#rx = new FaultPath({ ...both, ...rx }, 2 * seed + 1, inbound as Float64Array);
  }

  /** Sets the rings. Call it once, before `send` and `receive`. */
  attach(memory: Uint8Array, { card, tx, rx }: FaultPlan): this {
    this.#innerTx = new RingView(memory, tx);
    const room = { memory, slotBytes: card.slotBytes };
    this.#tx.attach(room, new RingView(memory, card.tx), this.#innerTx);
    this.#rx.attach(room, new RingView(memory, rx), new RingView(memory, card.rx));
    return this;
  }

  send(now: number): number {
    this.#now = now;
    const taken = this.#tx.forward(now);
    this.inner.send(now);
    return taken;
  }

  /**
   * Also releases delayed frames of the transmit direction: the device calls `send` only if the card has frames to
   * send.
   */
  receive(now: number): number {
    this.#now = now;
    this.#tx.releaseDue(now);
    if (this.#innerTx?.filled) this.inner.send(now);
    this.inner.receive(now);
    return this.#rx.releaseDue(now) + this.#rx.forward(now);
  }

  nextDeadline(): number {
    const retry = this.#innerTx?.filled ? this.#now + SEND_RETRY_NS : 0;
    const deadlines = [this.inner.nextDeadline(), this.#tx.nextDeadline, this.#rx.nextDeadline, retry];
    return deadlines.reduce((a, b) => (a === 0 || (b !== 0 && b < a) ? b : a), 0);
  }
}
