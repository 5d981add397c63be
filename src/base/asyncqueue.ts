/** Items that wait for their takers, or takers that wait for items. */
import { type WaitOptions, waitFor } from './waiting.js';

interface Taker<T> {
  resolve(item: T): void;
  reject(error: unknown): void;
}

/** See the head of this file. Both are served in order of arrival. */
export class AsyncQueue<T> {
  #items: T[];
  #takers: Taker<T>[] = [];
  /** Settles the takers that find no item after the end. */
  #end: ((taker: Taker<T>) => void) | undefined;

  constructor(items: readonly T[] = []) {
    this.#items = [...items];
  }

  /** Items that are not taken. */
  get items(): readonly T[] {
    return this.#items;
  }

  /** Takers that wait. */
  get waiting(): number {
    return this.#takers.length;
  }

  /** Whether the queue has ended. */
  get isEnded(): boolean {
    return this.#end !== undefined;
  }

  /** Gives an item to the taker that has waited longest, or keeps it for the next one. Drops it after the end. */
  put(item: T): void {
    if (this.isEnded) return;
    const taker = this.#takers.shift();
    if (taker === undefined) this.#items.push(item);
    else taker.resolve(item);
  }

  /** Takes the oldest item. Does not wait. @returns undefined when there is none */
  shift(): T | undefined {
    return this.#items.shift();
  }

  /**
   * Takes the oldest item as soon as there is one.
   * @param missing the absent item, for messages: `no event`
   * @returns the last item of `endWith` when no item is left
   * @throws the error of `end` when no item is left; the signal's reason; VerbsError ETIMEDOUT; TypeError, RangeError
   * for wrong options
   */
  take(wait: WaitOptions = {}, missing = 'no item'): Promise<T> {
    const item = this.#items.shift();
    if (item !== undefined) return Promise.resolve(item);
    if (this.#end !== undefined) return new Promise((resolve, reject) => this.#end?.({ resolve, reject }));
    let taker: Taker<T> | undefined;
    const taken = new Promise<T>((resolve, reject) => {
      taker = { resolve, reject };
      this.#takers.push(taker);
    });
    return waitFor(taken, missing, wait, () => {
      this.#takers = this.#takers.filter((other) => other !== taker);
    });
  }

  /** Removes and returns the items that match. */
  remove(matches: (item: T) => boolean): T[] {
    const removed = this.#items.filter(matches);
    this.#items = this.#items.filter((item) => !matches(item));
    return removed;
  }

  /**
   * Ends the queue: takers get the items that are left, then the error. The first end counts.
   * @param error a function makes the error for each taker: it has a stack, and most queues end without a taker
   */
  end(error: Error | (() => Error)): void {
    this.#endBy(({ reject }) => reject(typeof error === 'function' ? error() : error));
  }

  /** Ends the queue: takers get the items that are left, then this one, each of them. The first end counts. */
  endWith(last: T): void {
    this.#endBy(({ resolve }) => resolve(last));
  }

  /** Ends the waits of all takers with an error. Later items and takers are served as before. */
  interrupt(error: Error): void {
    this.#settle(({ reject }) => reject(error));
  }

  #endBy(end: (taker: Taker<T>) => void): void {
    this.#end ??= end;
    this.#settle(this.#end);
  }

  #settle(how: (taker: Taker<T>) => void): void {
    const takers = this.#takers;
    this.#takers = [];
    for (const taker of takers) how(taker);
  }
}
