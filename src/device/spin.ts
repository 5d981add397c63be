/**
 * How long to look for work before going to sleep. Waking a thread takes tens of microseconds, so who is soon asked again
 * had better stay awake; who is not only warms the room. What was right the last time decides.
 */
export class Spin {
  #length: number;

  /** @param most the longest (ns); 0 = never */
  constructor(readonly most: number) {
    this.#length = most;
  }

  /** For how long at present (ns). */
  get length(): number {
    return this.#length;
  }

  /** Something came after a sleep of so long (ns). */
  slept(duration: number): void {
    const { most } = this;
    if (!Number.isFinite(most)) return;
    this.#length = duration < most ? Math.min(most, Math.max(2 * this.#length, most / 8)) : this.#length / 2;
    if (this.#length < most / 32) this.#length = 0;
  }
}
