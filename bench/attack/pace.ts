/** A constant rate, as far as the attacker's processor allows. */

/** Most that one call of `send` is asked for. */
const BATCH = 128;

/** Calls a function so that `rate` units happen each second. What could not be done in time is not made up for. */
export class Pace {
  #isRunning = false;
  #done = 0;
  #since = 0;

  /** @param send does at most `count` units, the first of which has number `first`. @returns their number */
  start(rate: number, send: (first: number, count: number) => number): void {
    this.#isRunning = true;
    this.#done = 0;
    this.#since = performance.now();
    this.#step(rate, send);
  }

  /** @returns the units a second since `start` */
  stop(): number {
    this.#isRunning = false;
    return this.#done / ((performance.now() - this.#since) / 1000);
  }

  #step(rate: number, send: (first: number, count: number) => number): void {
    if (!this.#isRunning) return;
    const due = ((performance.now() - this.#since) / 1000) * rate;
    const allowed = Math.max(rate / 50, 1);
    if (due - this.#done > allowed) this.#since += ((due - this.#done - allowed) / rate) * 1000;
    const wanted = Math.min(Math.floor(due - this.#done), BATCH);
    const count = wanted > 0 ? send(this.#done, wanted) : 0;
    this.#done += count;
    if (count >= 32) setImmediate(() => this.#step(rate, send));
    else setTimeout(() => this.#step(rate, send), 1);
  }
}
