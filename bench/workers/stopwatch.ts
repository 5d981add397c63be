/** The warm-up and the window of a run. */
// Imported here and in the other workers, because the global `performance` is a getter.
import { performance } from 'node:perf_hooks';
import type { Part, Work } from '../work.js';
import { cpuSince } from './calls.js';

/** Counts messages, and records the begin and the end of the window. The clock starts with the constructor. */
export class Stopwatch {
  /** Messages of the whole run. */
  messages = 0;
  readonly #cpu = process.cpuUsage();
  readonly #from: number;
  readonly #until: number;
  /** A window without any message stays open until this time. */
  readonly #latest: number;
  #began = 0;
  #ended = 0;
  #before = 0;
  #after = 0;
  #framesBefore = 0;
  #framesAfter = 0;

  /** @param frames returns the number of frames of this end so far */
  constructor(
    { warmMs, ms }: Work,
    readonly frames?: () => number,
  ) {
    this.#from = performance.now() + warmMs;
    this.#until = this.#from + ms;
    this.#latest = this.#from + 10 * ms;
  }

  /** Reads the clock. @returns whether the run is over */
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

  /** Returns the result of this end. It has a window only after `tick` has returned true. */
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
