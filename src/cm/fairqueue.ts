/**
 * A bounded queue of items of many sources. A source has a path: a neighbour on the link, a network behind it, a host
 * in that network. At each step of the path all have the same share: who sends more than others only displaces items
 * of its own.
 */

/** The items whose sources' paths begin alike. */
class Branch<T> {
  size = 0;
  /** By the next step of the path. It changes only as sources come and go, and not with each item. */
  readonly #parts = new Map<number, Branch<T>>();
  /** The same in the order of service: the part that was served goes to the end. */
  readonly #order: Branch<T>[] = [];
  /** At the end of a path. */
  readonly #items: T[] = [];

  /** @param step the last step of the path */
  constructor(readonly step: number) {}

  add(path: readonly number[], depth: number, item: T): void {
    this.size++;
    const step = path[depth];
    if (step === undefined) {
      this.#items.push(item);
      return;
    }
    let part = this.#parts.get(step);
    if (part === undefined) {
      part = new Branch(step);
      this.#parts.set(step, part);
      this.#order.push(part);
    }
    part.add(path, depth + 1, item);
  }

  /** Removes the oldest item of the part whose turn it is. */
  takeOldest(): T {
    this.size--;
    const part = this.#order[0];
    if (part === undefined) return this.#items.shift() as T;
    const item = part.takeOldest();
    if (part.size === 0) this.#remove(part);
    else if (this.#order.length > 1) this.#order.push(this.#order.shift() as Branch<T>);
    return item;
  }

  /** Removes the newest item of the largest part. */
  takeNewest(): T {
    this.size--;
    if (this.#order.length === 0) return this.#items.pop() as T;
    const part = this.#order.reduce((largest, other) => (other.size > largest.size ? other : largest));
    const item = part.takeNewest();
    if (part.size === 0) this.#remove(part);
    return item;
  }

  /**
   * Makes room for an item of a source among `limit` items. The source does not have its share yet.
   * @returns the item that is removed
   */
  makeRoom(path: readonly number[], depth: number, limit: number): T {
    const part = this.#parts.get(path[depth] as number);
    if (part === undefined || this.#isBelowShare(part, limit)) return this.takeNewest();
    this.size--;
    return part.makeRoom(path, depth + 1, part.size);
  }

  /** Whether a source has its share of `limit` items. Without a search, so that a flood costs little. */
  hasShare(path: readonly number[], depth: number, limit: number): boolean {
    const part = this.#parts.get(path[depth] as number);
    if (this.#isBelowShare(part, limit)) return false;
    return part === undefined || depth + 1 === path.length || part.hasShare(path, depth + 1, part.size);
  }

  /** Whether one more item of a part is within its share of `limit` items. @param part undefined: a new one */
  #isBelowShare(part: Branch<T> | undefined, limit: number): boolean {
    const parts = this.#parts.size + (part === undefined ? 1 : 0);
    return ((part?.size ?? 0) + 1) * parts <= limit;
  }

  #remove(part: Branch<T>): void {
    this.#parts.delete(part.step);
    this.#order.splice(this.#order.indexOf(part), 1);
  }
}

/** See the head of this file. */
export class FairQueue<T> {
  readonly #all = new Branch<T>(0);

  /** @param capacity number of items */
  constructor(readonly capacity: number) {}

  /** Number of items. */
  get size(): number {
    return this.#all.size;
  }

  /**
   * Whether there is no place for an item of a source: the queue is full, and the source has its share.
   * @param path that of the source: one step or more, as many in each call
   */
  isFullFor(path: readonly number[]): boolean {
    return this.size === this.capacity && this.#all.hasShare(path, 0, this.capacity);
  }

  /**
   * Adds an item. A full queue loses the newest item of the source that has the most.
   * @param path that of its source
   * @returns the item that is lost: this one, an older one of another source, or undefined
   */
  add(path: readonly number[], item: T): T | undefined {
    if (this.isFullFor(path)) return item;
    const lost = this.size === this.capacity ? this.#all.makeRoom(path, 0, this.capacity) : undefined;
    this.#all.add(path, 0, item);
    return lost;
  }

  /** Removes and returns the oldest item of the source whose turn it is; undefined when there is none. */
  take(): T | undefined {
    return this.size === 0 ? undefined : this.#all.takeOldest();
  }
}
