/** Items that wait for those who take them, in order. */
interface Waiter<T> {
  resolve(item: T): void;
  reject(error: Error): void;
}

export class Mailbox<T> {
  readonly #items: T[] = [];
  readonly #waiters: Waiter<T>[] = [];
  #failure: Error | undefined;

  constructor(items: readonly T[] = []) {
    this.#items.push(...items);
  }

  /** Items that nobody has taken. */
  get length(): number {
    return this.#items.length;
  }

  put(item: T): void {
    const waiter = this.#waiters.shift();
    if (waiter === undefined) this.#items.push(item);
    else waiter.resolve(item);
  }

  /** Takes the oldest item as soon as there is one. @throws the error of `fail` */
  take(): Promise<T> {
    const item = this.#items.shift();
    if (item !== undefined) return Promise.resolve(item);
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
  }

  /** Ends the mailbox: `take` returns the items that are left, then throws. */
  fail(error: Error): void {
    this.#failure ??= error;
    for (const waiter of this.#waiters.splice(0)) waiter.reject(this.#failure);
  }
}
