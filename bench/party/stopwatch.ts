/** The warm-up and the window of a run. */
// Imported, here and in its neighbours: the global one is looked up by a getter each time.
import { performance } from 'node:perf_hooks';
import type { Part, Work } from '../work.js';
import { cpuSince } from './calls.js';

/** Counts what is done, and notes where the window began and ended. The clock starts when it is made. */
export class Stopwatch {
  /** Of the whole run. */
  messages = 0;
  readonly #cpu = process.cpuUsage();
  readonly #from: number;
  readonly #until: number;
  /** Until then a window in which nothing was done yet stays open. */
  readonly #latest: number;
  #began = 0;
  #ended = 0;
  #before = 0;
  #after = 0;
  #framesBefore = 0;
  #framesAfter = 0;

  /** @param frames counts those of this end so far */
  constructor(
    { warmMs, ms }: Work,
    readonly frames?: () => number,
  ) {
    this.#from = performance.now() + warmMs;
    this.#until = this.#from + ms;
    this.#latest = this.#from + 10 * ms;
  }

  /** Looks at the clock. @returns whether the run is over */
  tick(now = performance.now()): boolean {
    if (this.#began === 0 && now >= this.#from) {
      this.#framesBefore = this.frames?.() ?? 0;
      this.#began = performance.now();
      this.#before = this.messages;
    }
    if (now < this.#until || (this.messages === this.#before && now < this.#latest)) return false;
    if (this.#ended === 0) {
      this.#ended = now;
      this.#after = this.messages;
      this.#framesAfter = this.frames?.() ?? 0;
    }
    return true;
  }

  /** Whether the warm-up is over. */
  get isMeasuring(): boolean {
    return this.#began !== 0;
  }

  /** CPU time until now; only after `tick` has said that it is over does it have a window. */
  part(): Part {
    const cpu = cpuSince(this.#cpu);
    if (this.#ended === 0) return { cpu, messages: this.messages };
    const window = {
      messages: this.#after - this.#before,
      seconds: (this.#ended - this.#began) / 1000,
      ...(this.frames && { frames: this.#framesAfter - this.#framesBefore }),
    };
    return { cpu, messages: this.messages, window };
  }
}
