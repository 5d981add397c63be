/**
 * A set of numbers that changes with every message. A `Set` would do, but for its garbage: it replaces its table every
 * few changes, and each old table keeps its successors alive until V8 collects the old generation.
 */
import { randomInt } from 'node:crypto';

const WORD = 2 ** 32;

/** See the head of this file. */
export class KeySet {
  /** Open addressing, at most half full. NaN = free. */
  readonly #table: Float64Array;
  readonly #mask: number;
  /** Odd numbers that nobody else knows: whoever chooses the keys cannot make them collide. */
  readonly #low = randomInt(WORD / 2) * 2 + 1;
  readonly #high = randomInt(WORD / 2) * 2 + 1;

  /** @param capacity the most keys that are in the set at a time */
  constructor(capacity: number) {
    const places = 2 ** Math.ceil(Math.log2(2 * capacity));
    this.#table = new Float64Array(places).fill(Number.NaN);
    this.#mask = places - 1;
  }

  /** Adds a key, an integer from 0 to 2^53 - 1. @returns false when the set has it already */
  add(key: number): boolean {
    const at = this.#find(key);
    if (this.#table[at] === key) return false;
    this.#table[at] = key;
    return true;
  }

  /** Removes a key, if it is in the set. */
  delete(key: number): void {
    let free = this.#find(key);
    if (this.#table[free] !== key) return;
    // A later key whose search has to pass the free place moves there.
    for (let at = (free + 1) & this.#mask; ; at = (at + 1) & this.#mask) {
      const next = this.#table[at] as number;
      if (Number.isNaN(next)) break;
      if (((at - this.#homeOf(next)) & this.#mask) < ((at - free) & this.#mask)) continue;
      this.#table[free] = next;
      free = at;
    }
    this.#table[free] = Number.NaN;
  }

  /** Returns the place of a key, or the free place where it belongs. */
  #find(key: number): number {
    let at = this.#homeOf(key);
    while (this.#table[at] !== key && !Number.isNaN(this.#table[at] as number)) at = (at + 1) & this.#mask;
    return at;
  }

  #homeOf(key: number): number {
    const mixed = Math.imul(key | 0, this.#low) + Math.imul((key / WORD) | 0, this.#high);
    return ((mixed >>> 16) ^ mixed) & this.#mask;
  }
}
