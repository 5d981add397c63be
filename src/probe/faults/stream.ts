/** One direction of a device's traffic: packets pass by the rules of faults, which drop, change and delay them. */
import { decodeRoce } from '../packet/decode.js';
import type { FaultMatcher } from './matcher.js';
import { type Change, Streams } from './packets.js';

/** Time that a reordered frame waits for the frames that overtake it (ns). */
const REORDER_NS = 1_000_000;
/** The most frames that wait. Further ones are neither delayed nor reordered. */
const MAX_HELD = 4096;

interface HeldFrame {
  readonly frame: Uint8Array;
  readonly options: number;
  /** Time of release (ns of the device's clock). */
  readonly due: number;
  /** Number of passed frames at which the frame is released before `due`. */
  readonly after: number;
}

/** Takes a frame with the options of its descriptor. @returns false if there is no room for it now */
export type PutFrame = (frame: Uint8Array, options: number) => boolean;

/** See the head of this file. */
export class FaultStream {
  /** Rules of this direction. All that hit a packet apply, in their order. */
  rules: readonly FaultMatcher[] = [];
  readonly #streams = new Streams();
  readonly #held: HeldFrame[] = [];
  #passed = 0;

  /**
   * @param maxFrame bytes of the largest frame that `put` takes; a rule leaves a frame as it is that would grow beyond
   * @param put receives what is left of the traffic
   */
  constructor(
    readonly maxFrame: number,
    readonly put: PutFrame,
  ) {}

  /** When the next frame is due (ns of the device's clock); 0 = none waits. */
  get deadline(): number {
    return this.#held.length === 0 ? 0 : Math.min(...this.#held.map(({ due }) => due));
  }

  /** Whether it holds nothing back, and changes nothing. */
  get isIdle(): boolean {
    return this.#held.length === 0 && this.rules.length === 0;
  }

  /** Passes one frame, which the stream keeps, and what it releases. */
  pass(original: Uint8Array, options: number, now: number): void {
    const decoded = this.rules.length === 0 ? undefined : decodeRoce(original);
    let change: Change = { frame: original, copies: 1, delayNs: 0, overtakers: 0 };
    if (decoded !== undefined) {
      const stream = this.#streams.numberOf(decoded);
      for (const rule of this.rules) if (rule.hits(decoded, stream)) change = rule.apply(change, this.maxFrame);
    }
    const { frame, copies, delayNs, overtakers } = change;
    const isHeld = (delayNs > 0 || overtakers > 0) && this.#held.length < MAX_HELD;
    for (let i = 0; i < copies; i++)
      if (isHeld) {
        const after = overtakers > 0 ? this.#passed + overtakers : Number.POSITIVE_INFINITY;
        this.#held.push({ frame, options, due: now + (delayNs || REORDER_NS), after });
      } else {
        this.#put(frame, options);
      }
    this.release(now);
  }

  /** Releases the frames that are due. */
  release(now: number): void {
    while (this.#held.length > 0) {
      const ready = this.#held.findIndex(({ due, after }) => due <= now || after <= this.#passed);
      const next = this.#held[ready];
      if (next === undefined || !this.#put(next.frame, next.options)) return;
      this.#held.splice(ready, 1);
    }
  }

  /** A frame for which there is no room waits. */
  #put(frame: Uint8Array, options: number): boolean {
    if (!this.put(frame, options)) return false;
    this.#passed++;
    return true;
  }
}
