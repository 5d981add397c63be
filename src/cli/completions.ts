/** Waiting for completions: spinning while they come quickly, sleeping when they do not. */
import { setImmediate as eventLoop } from 'node:timers/promises';
import { type Cq, VerbsError, type Wc } from '../index.js';
import { failure } from './exit.js';

export interface WaitOptions {
  /** How long to spin before sleeping in the event loop, milliseconds; 0 = sleep at once. */
  readonly spinMs: number;
  /** How long to wait for a completion in all, milliseconds; 0 = without end. */
  readonly idleMs: number;
  /** How long a program that has much to do may keep signals, timers, sockets and other ends waiting, milliseconds; default 5. */
  readonly yieldMs?: number;
}

/** So long unless told otherwise (ms). */
const YIELD_MS = 5;
const BATCH = 16;

export class Completions {
  readonly #wcs: readonly Wc[];
  #next = 0;
  #filled = 0;
  #yieldAt = 0;

  constructor(
    readonly cq: Cq,
    readonly options: WaitOptions,
  ) {
    this.#wcs = cq.createWcs(BATCH);
  }

  /**
   * The next completion; the object is overwritten by later calls.
   * @throws CliError when none comes in time
   */
  async next(): Promise<Wc> {
    return (await this.nextWithin(Number.POSITIVE_INFINITY)) as Wc;
  }

  /**
   * The next completion, or undefined when none comes within so many milliseconds or before the waiting is stopped.
   * @throws CliError as `next`
   */
  async nextWithin(ms: number, stop?: AbortSignal): Promise<Wc | undefined> {
    if (this.#next === this.#filled) {
      await this.breathe();
      if (!this.#spin()) return this.#sleep(ms, stop);
    }
    return this.#wcs[this.#next++] as Wc;
  }

  /** Lets the event loop have its turn, if that is due. */
  async breathe(): Promise<void> {
    if (performance.now() < this.#yieldAt) return;
    await eventLoop();
    this.#yieldAt = performance.now() + (this.options.yieldMs ?? YIELD_MS);
  }

  #spin(): boolean {
    this.#next = 0;
    const end = performance.now() + this.options.spinMs;
    do this.#filled = this.cq.poll(this.#wcs);
    while (this.#filled === 0 && performance.now() < end);
    return this.#filled > 0;
  }

  async #sleep(ms: number, stop: AbortSignal | undefined): Promise<Wc | undefined> {
    const { idleMs } = this.options;
    const most = Math.max(ms, 0);
    const patience = idleMs > 0 ? Math.min(idleMs, most) : most;
    try {
      return await this.cq.next({
        ...(Number.isFinite(patience) && { timeout: patience }),
        ...(stop && { signal: stop }),
      });
    } catch (cause) {
      if (stop?.aborted) return undefined;
      if (!(cause instanceof VerbsError && cause.code === 'ETIMEDOUT')) throw cause;
      if (patience === most) return undefined;
      throw failure(`nothing from the peer for ${idleMs / 1000} s: it has stopped, or packets are lost on the way`, {
        cause,
      });
    }
  }
}
