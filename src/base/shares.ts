/**
 * Shares of a bounded resource. A client is an address, however many connections it has.
 */

/** Amounts by client. */
class Holdings {
  readonly #amounts = new Map<string, number>();

  of(client: string): number {
    return this.#amounts.get(client) ?? 0;
  }

  /** @param amount negative: the client holds less */
  add(client: string, amount: number): void {
    const held = this.of(client) + amount;
    if (held > 0) this.#amounts.set(client, held);
    else this.#amounts.delete(client);
  }
}

/**
 * A client may hold as much as it leaves free: one takes at most half, two a third each, and a client that has nothing
 * always finds something. While nobody holds anything, one request may take all.
 */
export class Shares {
  readonly #holdings = new Holdings();
  readonly #free: (used: number) => number;
  #used = 0;

  /** @param free returns how much is free when all clients together hold `used` */
  constructor(free: (used: number) => number) {
    this.#free = free;
  }

  /** Returns shares of a fixed amount. */
  static of(total: number): Shares {
    return new Shares((used) => total - used);
  }

  /** Returns the amount that all clients hold. */
  get used(): number {
    return this.#used;
  }

  /** Returns the amount that a client holds. */
  held(client: string): number {
    return this.#holdings.of(client);
  }

  /**
   * Lets a client hold more, until `release`.
   * @returns false, and nothing has changed, when the client would hold more than it leaves free
   */
  take(client: string, amount: number): boolean {
    const left = this.#free(this.#used) - amount;
    if (left < 0 || (this.held(client) + amount > left && this.#used > 0)) return false;
    this.#holdings.add(client, amount);
    this.#used += amount;
    return true;
  }

  /** Lets a client hold less. */
  release(client: string, amount: number): void {
    this.#holdings.add(client, -amount);
    this.#used -= amount;
  }
}

/** Things of which each client may hold a fixed number. */
export class Counts {
  readonly #holdings = new Holdings();

  constructor(readonly each: number) {}

  /** @returns false, and nothing has changed, when the client holds as many as it may */
  take(client: string): boolean {
    if (this.#holdings.of(client) >= this.each) return false;
    this.#holdings.add(client, 1);
    return true;
  }

  release(client: string): void {
    this.#holdings.add(client, -1);
  }
}
