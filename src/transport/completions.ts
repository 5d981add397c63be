/** Delivery of completions to callbacks. */

import { setImmediate } from '../base/timers.js';
import { throwLater } from '../base/uncaught.js';
import { WcStatus } from '../device/codes.js';
import { throwIfFailed } from '../verbs/diagnose/explain.js';
import type { Cq } from '../verbs/objects/cq.js';
import type { Qp } from '../verbs/objects/qp.js';
import type { Wc } from '../verbs/work/wc.js';
import type { RecvWr, SendWr } from '../verbs/work/wr.js';
import { onFatalEvent } from './disconnect.js';

/** Completions per poll, and polls in a row before the event loop continues. */
const BATCH_SIZE = 64;
const MAX_BATCHES = 16;

/**
 * Delivers the completions of a queue to a callback as they arrive, from the event loop. An exception of the callback
 * is uncaught, and the other completions are delivered nevertheless.
 *
 * @example
 * ```ts
 * const pump = new CompletionPump(cq, (wc) => console.log(wc.opcodeName, wc.wrId));
 * ```
 */
export class CompletionPump {
  readonly #cq: Cq;
  readonly #wcs: Wc[];
  readonly #onCompletion: (wc: Wc) => void;
  /** Further batches wait in the event loop. A completion event may start some before them, but adds none there. */
  #isInLoop = false;

  /** @param onCompletion receives a Wc that later polls overwrite; may close the queue */
  constructor(cq: Cq, onCompletion: (wc: Wc) => void) {
    this.#cq = cq;
    this.#wcs = cq.createWcs(BATCH_SIZE);
    this.#onCompletion = onCompletion;
    cq.on('completion', this.drain);
    cq.arm();
  }

  /** Delivers all pending completions, in batches between which the event loop runs. */
  readonly drain = (): void => {
    if (!this.#poll(MAX_BATCHES) || this.#isInLoop) return;
    this.#isInLoop = true;
    setImmediate(() => {
      this.#isInLoop = false;
      this.drain();
    });
  };

  /** Delivers everything that the queue holds in one go; later completions are not needed any more. */
  drainAll(): void {
    this.#poll(Math.ceil(this.#cq.cqe / BATCH_SIZE));
  }

  /** @returns whether more completions may be pending */
  #poll(batches: number): boolean {
    if (!this.#cq.isAlive) return false;
    // Arm first, so that a completion after the last poll raises an event. A poll that finds nothing takes a turn of
    // the device, by most links with a system call, so none follows a batch that is not full.
    this.#cq.arm();
    for (let batch = 0; batch < batches; batch++) {
      const count = this.#cq.pollUnlessFailed(this.#wcs);
      for (let i = 0; i < count; i++) this.#deliver(this.#wcs[i] as Wc);
      if (count < BATCH_SIZE || this.#cq.isClosed) return false;
    }
    return true;
  }

  /** The batch has left the queue already, so an exception must not stop the delivery of its other completions. */
  #deliver(wc: Wc): void {
    try {
      this.#onCompletion(wc);
    } catch (error) {
      throwLater(error);
    }
  }
}

/**
 * The work of one queue pair: posts requests, and delivers the completions that succeed. The first failure ends the
 * delivery and is reported once: a failed completion, an exception of the callback, a request that the queue pair
 * refuses, or its fatal event. A flush is no failure: it only shows that the queue pair is in ERR. The cause has a
 * completion, an event or a disconnect (`untilDisconnected`) of its own.
 */
export class Completions {
  readonly #onCompletion: (wc: Wc) => void;
  readonly #onFailure: (error: Error) => void;
  #qp: Qp | undefined;
  #isStopped = false;

  /** @param onCompletion receives a Wc that later polls overwrite */
  constructor(onCompletion: (wc: Wc) => void, onFailure: (error: Error) => void) {
    this.#onCompletion = onCompletion;
    this.#onFailure = onFailure;
  }

  /** Sets the queue pair, which the owner closes. */
  use(qp: Qp): void {
    this.#qp = qp;
    onFatalEvent(qp, (error) => this.fail(error));
  }

  /** Takes the completions of a queue that no other queue pair has. @returns the pump that delivers them */
  takeAll(cq: Cq): CompletionPump {
    return new CompletionPump(cq, this.take);
  }

  /** Takes a completion of the queue pair. */
  readonly take = (wc: Wc): void => {
    if (wc.status === WcStatus.WR_FLUSH_ERR) return;
    this.attempt(() => {
      throwIfFailed(wc);
      this.#onCompletion(wc);
    });
  };

  /** Whether completions are delivered no more. */
  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** Tells of a failure that no completion shows. */
  fail(error: Error): void {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#onFailure(error);
  }

  /** Delivers no more, and tells of no failure. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Posts a work request. One that is refused is a failure: none is refused but by a fault of either end. */
  post(wr: SendWr): void {
    this.attempt(() => this.#qp?.postSend(wr));
  }

  /** Posts receives, as `post`. */
  postReceive(wr: RecvWr | readonly RecvWr[]): void {
    this.attempt(() => this.#qp?.postRecv(wr));
  }

  /** Calls what posts work requests. An exception is a failure: the queue pair or the device may have been closed. */
  attempt(post: () => void): void {
    if (this.#isStopped) return;
    try {
      post();
    } catch (error) {
      this.fail(error as Error);
    }
  }
}
