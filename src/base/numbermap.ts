/** Objects by number, where many come and go. */

/**
 * Like a `Map` from numbers to objects, in order of insertion, but an object that was removed is garbage at once. The
 * table of a `Map` is replaced again and again while entries come and go. Each table refers to the next and to what was
 * in it, so that V8 keeps the removed objects until the next collection of the old generation. Here the table has
 * numbers alone.
 */
export class NumberMap<T extends object> {
  /** Index into `#objects` by number. */
  readonly #indexes = new Map<number, number>();
  readonly #objects: (T | undefined)[] = [];
  /** Unused indexes. */
  readonly #free: number[] = [];
  #lastNumber = 0;

  /** Count of objects. */
  get size(): number {
    return this.#indexes.size;
  }

  get(number: number): T | undefined {
    const index = this.#indexes.get(number);
    return index === undefined ? undefined : this.#objects[index];
  }

  set(number: number, object: T): void {
    const index = this.#indexes.get(number) ?? this.#free.pop() ?? this.#objects.length;
    this.#indexes.set(number, index);
    this.#objects[index] = object;
  }

  /** Adds an object with a number of its own. Not together with `set`. @returns the number */
  add(object: T): number {
    this.set(++this.#lastNumber, object);
    return this.#lastNumber;
  }

  delete(number: number): void {
    const index = this.#indexes.get(number);
    if (index === undefined) return;
    this.#indexes.delete(number);
    this.#objects[index] = undefined;
    this.#free.push(index);
  }

  /** Removes all objects. */
  clear(): void {
    for (const number of this.#indexes.keys()) this.delete(number);
  }

  /** Iterates over numbers and objects. An object may be removed meanwhile. */
  *[Symbol.iterator](): Generator<[number, T]> {
    for (const [number, index] of this.#indexes) yield [number, this.#objects[index] as T];
  }

  /** Iterates over the objects, as the iteration over the map does. */
  *values(): Generator<T> {
    for (const [, object] of this) yield object;
  }
}
