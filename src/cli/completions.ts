/** Waits for completions: spins while they come quickly, and sleeps when they do not. */
import { setImmediate as eventLoop } from 'node:timers/promises';
import { type Cq, VerbsError, type Wc } from '../index.js';
import { failure } from './exit.js';

export interface WaitOptions {
  /** Time to spin before sleeping in the event loop, milliseconds; 0 = sleep at once. */
  readonly spinMs: number;
  /** Time to wait for one completion, milliseconds; 0 = no limit. */
  readonly idleMs: number;
  /**
   * Longest time that a busy program holds up the event loop, milliseconds: signals, timers and sockets wait. Default:
   * 5.
   */
  readonly yieldMs?: number;
}

/** Default of `yieldMs`. */
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
   * Returns the next completion. Later calls overwrite the object.
   * @throws CliError when none comes within `idleMs`
   */
  async next(): Promise<Wc> {
    return (await this.nextWithin(Number.POSITIVE_INFINITY)) as Wc;
  }

  /**
   * Returns the next completion, or undefined when none comes within `ms` milliseconds or before `stop` is aborted.
   * @throws CliError as `next`
   */
  async nextWithin(ms: number, stop?: AbortSignal): Promise<Wc | undefined> {
    if (this.#next === this.#filled) {
      await this.yieldToEventLoop();
      if (!this.#spin()) return this.#sleep(ms, stop);
    }
    return this.#wcs[this.#next++] as Wc;
  }

  /** Lets the event loop run, if `yieldMs` have passed since the last time. */
  async yieldToEventLoop(): Promise<void> {
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
    const limit = Math.max(ms, 0);
    const timeout = idleMs > 0 ? Math.min(idleMs, limit) : limit;
    try {
      return await this.cq.next({
        ...(Number.isFinite(timeout) && { timeout }),
        ...(stop && { signal: stop }),
      });
    } catch (cause) {
      if (stop?.aborted) return undefined;
      if (!(cause instanceof VerbsError && cause.code === 'ETIMEDOUT')) throw cause;
      if (timeout === limit) return undefined;
      throw failure(`nothing from the peer for ${idleMs / 1000} s: it has stopped, or packets are lost`, {
        cause,
      });
    }
  }
}
