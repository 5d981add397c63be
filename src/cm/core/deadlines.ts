/** Deadlines of many objects, ordered by a binary heap. Times are milliseconds without an origin. */

/** An object that `Deadlines` can hold. Only `Deadlines` writes these fields. */
export interface Timed {
  /** Infinity: none. */
  deadline: number;
  /** Index in the heap; -1: not in the heap. */
  heapIndex: number;
}

/** A heap of objects by their deadline. */
export class Deadlines<T extends Timed> {
  readonly #heap: T[] = [];

  /** The earliest deadline; Infinity when there is none. */
  get next(): number {
    return this.#heap[0]?.deadline ?? Number.POSITIVE_INFINITY;
  }

  /** Sets the deadline of an item. @param at Infinity: none */
  set(item: T, at: number): void {
    item.deadline = at;
    if (at === Number.POSITIVE_INFINITY) {
      this.#remove(item);
      return;
    }
    if (item.heapIndex < 0) item.heapIndex = this.#heap.push(item) - 1;
    this.#sift(item);
  }

  /** Removes the deadline of an item. */
  clear(item: T): void {
    this.set(item, Number.POSITIVE_INFINITY);
  }

  /** Removes and returns an item whose deadline has passed; undefined when there is none. */
  takeExpired(now: number): T | undefined {
    const [first] = this.#heap;
    if (first === undefined || first.deadline > now) return undefined;
    this.clear(first);
    return first;
  }

  #remove(item: T): void {
    const { heapIndex } = item;
    if (heapIndex < 0) return;
    const last = this.#heap.pop() as T;
    item.heapIndex = -1;
    if (last === item) return;
    this.#put(last, heapIndex);
    this.#sift(last);
  }

  /** Moves an item up or down until its parent is not later and its children are not earlier. */
  #sift(item: T): void {
    let { heapIndex } = item;
    while (heapIndex > 0) {
      const above = (heapIndex - 1) >> 1;
      const parent = this.#heap[above] as T;
      if (parent.deadline <= item.deadline) break;
      this.#put(parent, heapIndex);
      heapIndex = above;
    }
    for (;;) {
      const left = this.#heap[2 * heapIndex + 1];
      const right = this.#heap[2 * heapIndex + 2];
      const child = right !== undefined && left !== undefined && right.deadline < left.deadline ? right : left;
      if (child === undefined || child.deadline >= item.deadline) break;
      const below = child.heapIndex;
      this.#put(child, heapIndex);
      heapIndex = below;
    }
    this.#put(item, heapIndex);
  }

  #put(item: T, index: number): void {
    this.#heap[index] = item;
    item.heapIndex = index;
  }
}
