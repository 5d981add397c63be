/** Hands the completions of a queue over as they come, in the event loop. */
import type { Cq } from '../verbs/cq.js';
import { pollAlive } from '../verbs/polling.js';
import type { Wc } from '../verbs/wc.js';
import { throwLater } from './uncaught.js';

/** Completions that are taken at a time, and so often in a row, before the event loop gets its turn. */
const BATCH = 64;
const BATCHES = 16;

export class Pump {
  readonly #cq: Cq;
  readonly #wcs: Wc[];
  readonly #onCompletion: (wc: Wc) => void;

  /** @param onCompletion gets an object that is overwritten later; may close the queue */
  constructor(cq: Cq, onCompletion: (wc: Wc) => void) {
    this.#cq = cq;
    this.#wcs = cq.createWcs(BATCH);
    this.#onCompletion = onCompletion;
    cq.on('completion', this.drain);
    cq.arm();
  }

  /** Takes what is there. */
  readonly drain = (): void => {
    if (this.#take(BATCHES)) setImmediate(this.drain);
  };

  /** Takes all that the queue holds, at once: what comes behind it does not count any more. */
  finish(): void {
    this.#take(Math.ceil(this.#cq.cqe / BATCH));
  }

  /** @returns whether there may be more */
  #take(batches: number): boolean {
    if (!this.#cq.isAlive) return false;
    // armed first: what comes behind the last look rings
    this.#cq.arm();
    for (let batch = 0; batch < batches; batch++) {
      const count = pollAlive(this.#cq, this.#wcs);
      for (let i = 0; i < count; i++) this.#handOver(this.#wcs[i] as Wc);
      if (count === 0 || this.#cq.isClosed) return false;
    }
    return true;
  }

  /** The queue does not have the others any more: they are handed over whatever becomes of this one. */
  #handOver(wc: Wc): void {
    try {
      this.#onCompletion(wc);
    } catch (error) {
      throwLater(error);
    }
  }
}
