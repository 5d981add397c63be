/** Deadlines of many, of which the earliest is asked for: a binary heap. Times are milliseconds without an origin. */

export interface Timed {
  /** Infinity = none. To be changed by `Deadlines` only. */
  deadline: number;
  /** Place in the heap; -1 = not in it. */
  place: number;
}

export class Deadlines<T extends Timed> {
  readonly #heap: T[] = [];

  /** The earliest; Infinity when there is none. */
  get next(): number {
    return this.#heap[0]?.deadline ?? Number.POSITIVE_INFINITY;
  }

  /** @param at Infinity = never */
  set(item: T, at: number): void {
    item.deadline = at;
    if (at === Number.POSITIVE_INFINITY) {
      this.#remove(item);
      return;
    }
    if (item.place < 0) item.place = this.#heap.push(item) - 1;
    this.#settle(item);
  }

  clear(item: T): void {
    this.set(item, Number.POSITIVE_INFINITY);
  }

  /** Takes one whose deadline has come; undefined when there is none. */
  takeExpired(now: number): T | undefined {
    const [first] = this.#heap;
    if (first === undefined || first.deadline > now) return undefined;
    this.clear(first);
    return first;
  }

  #remove(item: T): void {
    const { place } = item;
    if (place < 0) return;
    const last = this.#heap.pop() as T;
    item.place = -1;
    if (last === item) return;
    this.#put(last, place);
    this.#settle(last);
  }

  /** Moves an item up or down until its parent is not later and its children are not earlier. */
  #settle(item: T): void {
    let { place } = item;
    while (place > 0) {
      const above = (place - 1) >> 1;
      const parent = this.#heap[above] as T;
      if (parent.deadline <= item.deadline) break;
      this.#put(parent, place);
      place = above;
    }
    for (;;) {
      const left = this.#heap[2 * place + 1];
      const right = this.#heap[2 * place + 2];
      const child = right !== undefined && left !== undefined && right.deadline < left.deadline ? right : left;
      if (child === undefined || child.deadline >= item.deadline) break;
      const below = child.place;
      this.#put(child, place);
      place = below;
    }
    this.#put(item, place);
  }

  #put(item: T, place: number): void {
    this.#heap[place] = item;
    item.place = place;
  }
}
