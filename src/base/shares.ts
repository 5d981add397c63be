/**
 * Shares of what clients take of a bounded resource. A client may hold as much as it leaves free: one takes at most the
 * half, two a third each, and for a client that has nothing there is always something. A client is an address, however
 * many connections it has.
 */
export class Shares {
  readonly #held = new Map<string, number>();
  readonly #free: (used: number) => number;
  #used = 0;

  /** @param free how much is free, when `used` is held by all clients together */
  constructor(free: (used: number) => number) {
    this.#free = free;
  }

  /** Shares of a fixed amount. */
  static of(total: number): Shares {
    return new Shares((used) => total - used);
  }

  /** What all clients hold. */
  get used(): number {
    return this.#used;
  }

  /** What a client holds. */
  held(client: string): number {
    return this.#held.get(client) ?? 0;
  }

  /**
   * Lets a client hold more, until `release`.
   * @returns false, and nothing has changed, when it would hold more than it leaves free; the only client may hold all
   */
  take(client: string, amount: number): boolean {
    const left = this.#free(this.#used) - amount;
    const held = this.held(client) + amount;
    if (left < 0 || (held > left && this.#used > 0)) return false;
    this.#held.set(client, held);
    this.#used += amount;
    return true;
  }

  /** A client holds less. */
  release(client: string, amount: number): void {
    const held = this.held(client) - amount;
    this.#used -= amount;
    if (held > 0) this.#held.set(client, held);
    else this.#held.delete(client);
  }
}

/** Things of which each client may hold a fixed number. */
export class Counts {
  readonly #held = new Map<string, number>();

  constructor(readonly each: number) {}

  /** @returns false, and nothing has changed, when the client holds as many as it may */
  take(client: string): boolean {
    const held = (this.#held.get(client) ?? 0) + 1;
    if (held > this.each) return false;
    this.#held.set(client, held);
    return true;
  }

  release(client: string): void {
    const held = (this.#held.get(client) ?? 0) - 1;
    if (held > 0) this.#held.set(client, held);
    else this.#held.delete(client);
  }
}
