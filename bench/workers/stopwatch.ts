/** The warm-up and the window of a run. */
// Imported here and in the other workers, because the global `performance` is a getter.
import { performance } from 'node:perf_hooks';
import type { Part, Work } from '../work.js';
import { cpuSince } from './calls.js';

/** Most milliseconds that the bytes of a warm-up may take longer than its time. */
const WARM_BYTES_MS = 1000;

/** Counts messages, and records the begin and the end of the window. The clock starts with the constructor. */
export class Stopwatch {
  /** Messages of the whole run. */
  messages = 0;
  readonly #cpu = process.cpuUsage();
  readonly #from: number;
  readonly #ms: number;
  /** Messages of the warm-up. */
  readonly #warmMessages: number;
  #began = 0;
  #ended = 0;
  #before = 0;
  #after = 0;
  #framesBefore = 0;
  #framesAfter = 0;

  /** @param frames returns the number of frames of this end so far */
  constructor(
    { warmMs, ms, warmBytes = 0, size }: Work,
    readonly frames?: () => number,
  ) {
    this.#from = performance.now() + warmMs;
    this.#ms = ms;
    this.#warmMessages = warmBytes / size;
  }

  /** Reads the clock. @returns whether the run is over */
  tick(now = performance.now()): boolean {
    if (this.#began === 0) {
      const isWarm = this.messages >= this.#warmMessages || now >= this.#from + WARM_BYTES_MS;
      if (now < this.#from || !isWarm) return false;
      this.#framesBefore = this.frames?.() ?? 0;
      this.#began = performance.now();
      this.#before = this.messages;
    }
    const passed = now - this.#began;
    // A window without any message stays open for longer.
    if (passed < this.#ms || (this.messages === this.#before && passed < 10 * this.#ms)) return false;
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
