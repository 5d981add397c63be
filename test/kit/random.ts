/** Reproducible random numbers: the same seed gives the same numbers on every machine. */
export class Random {
  #state: number;

  constructor(readonly seed: number) {
    this.#state = seed >>> 0;
  }

  /** Returns an integer from 0 to 2^32 - 1 (the "mulberry32" generator). */
  u32(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let x = this.#state;
    x = Math.imul(x ^ (x >>> 15), x | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return (x ^ (x >>> 14)) >>> 0;
  }

  /** Returns a number, 0 <= result < 1. */
  fraction(): number {
    return this.u32() / 2 ** 32;
  }

  /** Returns an integer, from <= result < to. */
  between(from: number, to: number): number {
    return from + Math.floor(this.fraction() * (to - from));
  }

  /** Returns an integer, 0 <= result < limit. */
  below(limit: number): number {
    return this.between(0, limit);
  }

  chance(probability: number): boolean {
    return this.fraction() < probability;
  }

  pick<T>(items: readonly T[]): T {
    if (items.length === 0) throw new RangeError('the list to pick from is empty');
    return items[this.below(items.length)] as T;
  }

  bytes(length: number): Uint8Array {
    const out = new Uint8Array(length);
    for (let i = 0; i < length; i++) out[i] = this.u32() >>> 24;
    return out;
  }

  /** Returns an independent generator, which later numbers of this one do not affect. */
  fork(): Random {
    return new Random(this.u32());
  }
}
