/**
 * The time for which the card's thread polls for work before it sleeps. Waking a thread takes tens of microseconds.
 * Polling avoids this if work arrives soon, and wastes a processor if not. The duration adapts: a sleep that longer
 * polling would have avoided doubles it, a longer sleep halves it.
 */
export class Spin {
  #length: number;

  /** @param max maximum duration (ns); 0 = never poll, Infinity = never sleep */
  constructor(readonly max: number) {
    this.#length = max;
  }

  /** Current duration (ns). */
  get duration(): number {
    return this.#length;
  }

  /** Adapts the duration to a sleep that work has ended. @param duration of the sleep (ns) */
  recordSleep(duration: number): void {
    const { max } = this;
    if (!Number.isFinite(max)) return;
    this.#length = duration < max ? Math.min(max, Math.max(2 * this.#length, max / 8)) : this.#length / 2;
    if (this.#length < max / 32) this.#length = 0;
  }
}
