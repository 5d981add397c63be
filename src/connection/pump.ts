/** Hands the completions of a queue over as they come, in the event loop. */
import type { Cq } from '../verbs/cq.js';
import type { Wc } from '../verbs/wc.js';

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
    if (this.#cq.isClosed) return;
    // armed first: what comes behind the last look rings
    this.#cq.arm();
    for (let batch = 0; batch < BATCHES; batch++) {
      const count = this.#cq.poll(this.#wcs);
      for (let i = 0; i < count; i++) this.#onCompletion(this.#wcs[i] as Wc);
      if (count === 0 || this.#cq.isClosed) return;
    }
    setImmediate(this.drain);
  };
}
