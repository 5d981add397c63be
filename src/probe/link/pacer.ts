/** When packets may leave, so that no second has more of them than a rate. Reads no clock. */

/** Parts of a second, each of which has its share of the packets. A share may leave at once. */
const SHARES = 100;

/** Keeps packets to a rate. All times are nanoseconds of one clock. */
export class Pacer {
  /** When the last packets left: as many as a window may have. */
  readonly #left: Float64Array;
  /** Place of the oldest of these. */
  #oldest = 0;
  readonly #window: number;

  /**
   * A hundredth of a second has a hundredth of the packets at most, so trains shorter than that leave undelayed. Below
   * 100 packets per second each waits for its own part of the second.
   * @param rate the most packets per second, an integer from 1
   */
  constructor(rate: number) {
    const share = Math.max(1, Math.floor(rate / SHARES));
    this.#left = new Float64Array(share).fill(Number.NEGATIVE_INFINITY);
    this.#window = Math.ceil((share / rate) * 1e9);
  }

  /** Returns when a packet may leave, if those `ahead` of it leave as soon as they may: now, or later. */
  departure(now: number, ahead = 0): number {
    const share = this.#left.length;
    const free = (this.#left[(this.#oldest + ahead) % share] as number) + this.#window;
    return Math.max(now, free) + Math.floor(ahead / share) * this.#window;
  }

  /** A packet leaves. */
  left(now: number): void {
    this.#left[this.#oldest] = now;
    this.#oldest = (this.#oldest + 1) % this.#left.length;
  }
}
