/** Pseudo-random numbers that a seed determines, for reproducible faults. Not for secrets. */
export class Random {
  readonly #state = new Uint32Array(4);

  /** @param seed any integer; equal seeds give equal sequences */
  constructor(seed: number) {
    // splitmix32 spreads neighbouring seeds over the whole state.
    let x = seed >>> 0;
    for (let i = 0; i < 4; i++) {
      x = (x + 0x9e3779b9) >>> 0;
      let z = x;
      z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
      z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
      this.#state[i] = z ^ (z >>> 15);
    }
    // Use the bits above the lowest 32, too.
    this.#state[3] = (this.#state[3] as number) ^ Math.floor(seed / 2 ** 32);
    if (this.#state.every((word) => word === 0)) this.#state[0] = 1;
    for (let i = 0; i < 8; i++) this.u32();
  }

  /** Returns 32 random bits (xoshiro128**). */
  u32(): number {
    const s = this.#state;
    const [a, b, c, d] = s as unknown as [number, number, number, number];
    const result = Math.imul(rotate(Math.imul(b, 5), 7), 9) >>> 0;
    s[2] = c ^ a;
    s[3] = d ^ b;
    s[1] = b ^ (s[2] as number);
    s[0] = a ^ (s[3] as number);
    s[2] = (s[2] as number) ^ (b << 9);
    s[3] = rotate(s[3] as number, 11);
    return result;
  }

  /** Returns a number in [0, 1). */
  unit(): number {
    return this.u32() / 2 ** 32;
  }

  /** Returns an integer in [0, bound). */
  below(bound: number): number {
    return Math.floor(this.unit() * bound);
  }
}

function rotate(x: number, by: number): number {
  return (x << by) | (x >>> (32 - by));
}
