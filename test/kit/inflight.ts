/** Frames in flight, ordered by arrival time: a heap over slots of one buffer. */
export class InFlight {
  readonly store: Uint8Array;
  readonly length: Int32Array;
  readonly to: Int32Array;
  readonly from: Int32Array;
  readonly #time: Float64Array;
  readonly #order: Float64Array;
  readonly #heap: Int32Array;
  readonly #free: Int32Array;
  #freeCount: number;
  #serial = 0;
  count = 0;

  constructor(
    readonly slots: number,
    readonly slotBytes: number,
  ) {
    this.store = new Uint8Array(slots * slotBytes);
    this.length = new Int32Array(slots);
    this.to = new Int32Array(slots);
    this.from = new Int32Array(slots);
    this.#time = new Float64Array(slots);
    this.#order = new Float64Array(slots);
    this.#heap = new Int32Array(slots);
    this.#free = Int32Array.from({ length: slots }, (_, i) => slots - 1 - i);
    this.#freeCount = slots;
  }

  /** The arrival time of the next frame. */
  get next(): number {
    return this.count === 0 ? Number.POSITIVE_INFINITY : (this.#time[this.#heap[0] as number] as number);
  }

  /** Returns a slot for a frame that arrives at `time`; -1 when no slot is free. */
  add(time: number): number {
    if (this.#freeCount === 0) return -1;
    const slot = this.#free[--this.#freeCount] as number;
    this.#time[slot] = time;
    this.#order[slot] = this.#serial++;
    let at = this.count++;
    for (; at > 0; ) {
      const parent = (at - 1) >> 1;
      if (this.#before(this.#heap[parent] as number, slot)) break;
      this.#heap[at] = this.#heap[parent] as number;
      at = parent;
    }
    this.#heap[at] = slot;
    return slot;
  }

  /** Removes and returns the slot of the next frame. It stays readable until the next `add`. */
  take(): number {
    const slot = this.#heap[0] as number;
    const last = this.#heap[--this.count] as number;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.count) break;
      if (child + 1 < this.count && this.#before(this.#heap[child + 1] as number, this.#heap[child] as number)) child++;
      if (this.#before(last, this.#heap[child] as number)) break;
      this.#heap[at] = this.#heap[child] as number;
      at = child;
    }
    this.#heap[at] = last;
    this.#free[this.#freeCount++] = slot;
    return slot;
  }

  #before(a: number, b: number): boolean {
    const [s, t] = [this.#time[a] as number, this.#time[b] as number];
    return s < t || (s === t && (this.#order[a] as number) < (this.#order[b] as number));
  }
}
