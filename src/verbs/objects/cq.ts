/** Completion queues. */

import type { EventEmitter } from 'node:events';
import { AsyncQueue } from '../../base/asyncqueue.js';
import { type Checks, checkBoolean, checkInteger, checkOptions, integer, wrongType } from '../../base/options.js';
import { nextTick } from '../../base/timers.js';
import { checkWait, type WaitOptions } from '../../base/waiting.js';
import { Errno, LIMITS } from '../../device/codes.js';
import { invalidValue, VerbsError } from '../../errors.js';
import type { Description } from '../diagnose/describe.js';
import { Wc } from '../work/wc.js';
import type { DeviceBase } from './devicebase.js';
import { Resource } from './resource.js';

/** Options of `device.createCq`. */
export interface CqOptions {
  /**
   * Number of completions that the queue holds, 1..4194304. When more are pending it overruns and fails. Default 256.
   */
  readonly cqe?: number;
}

const CHECKS: Checks<CqOptions> = { cqe: integer(1, LIMITS.maxCqe) };

/** The asynchronous event of a completion queue: it overran. */
export interface CqEvent {
  /** Always `CQ_ERR`. */
  readonly type: 'CQ_ERR';
  /** The completion queue concerned. */
  readonly cq: Cq;
}

export interface Cq extends EventEmitter<{ event: [event: CqEvent]; completion: [] }> {}

/**
 * A completion queue (ibv_cq). There are three ways to get completions: `poll` (allocates nothing, suits spinning),
 * `next` and `for await` (wait in the event loop), and `arm` with the event `completion`. `device.createCq` creates it.
 *
 * Events: `completion` (once after `arm`), `event` (an asynchronous event of this queue).
 *
 * @example
 * ```ts
 * const cq = await device.createCq({ cqe: 1024 });
 * const wcs = cq.createWcs(16);
 * const count = cq.poll(wcs);
 * for (const wc of wcs.slice(0, count)) throwIfFailed(wc);
 * const next = await cq.next({ timeout: 1000 });
 * console.log(next.opcodeName, next.wrId);
 * ```
 */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: the base class is an emitter
export class Cq extends Resource {
  /** Always `cq`. */
  readonly kind = 'cq';
  /** Number of the queue on its device. */
  readonly label: string;
  readonly #handle: number;
  #cqe: number;
  /** The calls of `next` that wait. Completions themselves wait in the card. */
  readonly #waiters = new AsyncQueue<Wc>();
  #armedByUser = false;
  #overrun = false;

  /** @internal Use `device.createCq`. */
  constructor(
    /** Device of the queue. */
    readonly device: DeviceBase,
    number: number,
    options: CqOptions,
  ) {
    super([device]);
    const { cqe = 256 } = checkOptions('createCq', options, CHECKS);
    this.label = String(number);
    this.#cqe = cqe;
    this.#handle = device.card.exports.cqCreate(cqe);
    if (this.#handle === 0) throw new VerbsError('ENOMEM', `no memory for a completion queue of ${cqe} entries`);
    device.register(this.#handle, this);
    this.addToParents();
  }

  /** @internal */
  get handle(): number {
    return this.#handle;
  }

  /** Number of completions that the queue holds. */
  get cqe(): number {
    return this.#cqe;
  }

  /**
   * Resizes the queue (ibv_resize_cq). Pending completions are kept. An overrun queue stays failed.
   * @param cqe new number of completions, 1..4194304
   * @throws TypeError, RangeError for a wrong size; VerbsError EINVAL when more completions are pending, ENOMEM when
   * memory is exhausted. After an error nothing is changed
   */
  async resize(cqe: number): Promise<void> {
    this.assertOpen();
    checkInteger('cqe', cqe, 1, LIMITS.maxCqe);
    const { exports } = this.device.card;
    const refused = exports.cqResize(this.#handle, cqe);
    if (refused === Errno.ENOMEM) throw new VerbsError('ENOMEM', `no memory to resize ${this} to ${cqe} completions`);
    if (refused !== 0)
      throw new VerbsError(
        'EINVAL',
        `cqe is ${cqe}, must be at least the ${exports.cqFilled(this.#handle)} pending completions of ${this}`,
      );
    this.#cqe = cqe;
  }

  /** Creates completion objects for `poll`. @param count 1..4194304 @throws TypeError, RangeError */
  createWcs(count: number): Wc[] {
    return Array.from({ length: checkInteger('count', count, 1, LIMITS.maxCqe) }, () => new Wc());
  }

  /**
   * Polls completions, oldest first (ibv_poll_cq). It never waits and allocates nothing. In inline mode it runs a turn
   * of the device when no completion is pending, so that a program may spin on it.
   * @param into completion objects to overwrite, from `createWcs`
   * @returns the number of completions filled in
   * @throws TypeError; VerbsError EIO when the queue has overrun and is empty, or when the device has failed; EINVAL
   * after close
   */
  poll(into: readonly Wc[]): number {
    this.assertOpen();
    if (!Array.isArray(into)) throw wrongType('into', into, 'an array of createWcs');
    let count = this.#pollInto(into);
    if (count > 0) return count;
    this.device.engine.poll();
    this.assertOpen();
    count = this.#pollInto(into);
    if (count === 0 && this.#overrun) throw this.#overrunError();
    return count;
  }

  /**
   * Requests one `completion` event for the next completion (ibv_req_notify_cq). Poll once more after arming, because
   * earlier completions raise no event.
   * @param solicitedOnly only solicited and failed completions raise the event; no effect while `next` is pending.
   * Default false
   * @throws VerbsError EINVAL after close, EIO when the device has failed
   */
  arm(solicitedOnly = false): void {
    checkBoolean('solicitedOnly', solicitedOnly);
    this.assertOpen();
    this.#armedByUser = true;
    this.device.card.exports.cqArm(this.#handle, solicitedOnly && this.#waiters.waiting === 0);
  }

  /**
   * Waits for the next completion in the event loop. Keeps the process running in the meantime.
   * @returns a completion object of its own
   * @throws the signal's reason; VerbsError ETIMEDOUT after `timeout`, ECANCELED when the queue is closed in the
   * meantime, EINVAL after close, EIO when the queue has overrun or the device has failed; TypeError for wrong options
   */
  next(wait: WaitOptions = {}): Promise<Wc> {
    try {
      this.assertOpen();
      checkWait(wait);
      const wc = this.#waiters.waiting === 0 ? this.#pollOne() : undefined;
      if (wc !== undefined) return Promise.resolve(wc);
      if (this.#overrun) throw this.#overrunError();
    } catch (error) {
      return Promise.reject(error);
    }
    return this.#wait(wait);
  }

  /**
   * Iterates over completions, each an object of its own, until the queue is closed.
   * @throws the signal's reason; VerbsError EIO when the queue has overrun or the device has failed
   */
  async *completions(options: Pick<WaitOptions, 'signal'> = {}): AsyncGenerator<Wc, void, void> {
    while (!this.isClosed) {
      let wc: Wc;
      try {
        wc = await this.next(options);
      } catch (error) {
        if (this.isClosed && error instanceof VerbsError && error.code === 'ECANCELED') return;
        throw error;
      }
      yield wc;
    }
  }

  /** Same as `completions()`. */
  [Symbol.asyncIterator](): AsyncGenerator<Wc, void, void> {
    return this.completions();
  }

  /** @internal The card raised the completion event. */
  onCompletion(): void {
    this.#resolveWaiters();
    if (!this.#armedByUser) return;
    this.#armedByUser = false;
    nextTick(() => this.emit('completion'));
  }

  /** @internal The card dropped a completion. */
  onOverrun(): void {
    this.#overrun = true;
    this.onCompletion();
    this.#waiters.interrupt(this.#overrunError());
  }

  /** @internal Same as `poll`, but returns 0 when the device has failed, of which the caller learns in another way. */
  pollUnlessFailed(into: readonly Wc[]): number {
    if (!this.isAlive) return 0;
    try {
      return this.poll(into);
    } catch (error) {
      // This poll may be the one that detects the failure.
      if (this.isAlive) throw error;
      return 0;
    }
  }

  /** @internal The device has failed: rejects all waiters. */
  onFailure(reason: string): void {
    this.#waiters.interrupt(new VerbsError('EIO', reason));
  }

  /** @internal */
  protected override describe(): Description {
    return { cqe: this.cqe, pending: this.device.card.exports.cqFilled(this.#handle) };
  }

  /** @internal */
  protected free(): void {
    const { exports } = this.device.card;
    if (exports.cqDestroy(this.#handle) !== 0) throw new VerbsError('EBUSY', `${this} is in use`);
    this.device.unregister(this.#handle, this);
    this.#waiters.end(new VerbsError('ECANCELED', `${this} was closed during a wait for a completion`));
  }

  #pollInto(into: readonly Wc[]): number {
    const { card } = this.device;
    const { exports } = card;
    let count = 0;
    while (count < into.length) {
      const at = exports.cqPeek(this.#handle);
      if (at === 0) break;
      (into[count++] as Wc).read(card, at, this.device);
      // A setter of the program may have closed the queue.
      if (!this.isAlive) break;
      exports.cqPop(this.#handle);
    }
    return count;
  }

  #pollOne(): Wc | undefined {
    const { card } = this.device;
    const at = card.exports.cqPeek(this.#handle);
    if (at === 0) return undefined;
    const wc = new Wc();
    wc.read(card, at, this.device);
    card.exports.cqPop(this.#handle);
    return wc;
  }

  #wait(wait: WaitOptions): Promise<Wc> {
    const { engine } = this.device;
    const next = this.#waiters.take(wait, `no completion on ${this}`);
    engine.ref();
    this.#resolveWaiters();
    return next.finally(() => engine.unref());
  }

  /** Resolves waiters with pending completions, and arms the queue while a waiter is left. */
  #resolveWaiters(): void {
    const { exports } = this.device.card;
    while (this.#waiters.waiting > 0) {
      const wc = this.#pollOne();
      if (wc !== undefined) {
        this.#waiters.put(wc);
        continue;
      }
      exports.cqArm(this.#handle, false);
      // A completion just before arming raises no event.
      if (exports.cqPeek(this.#handle) === 0) return;
    }
  }

  #overrunError(): VerbsError {
    return new VerbsError('EIO', `${this} overran: more than ${this.cqe} completions were pending and some are lost`);
  }
}

/** @internal @throws TypeError unless `cq` is a completion queue of the device */
export function checkCq(name: string, cq: unknown, device: DeviceBase): void {
  if (!(cq instanceof Cq)) throw wrongType(name, cq, 'a completion queue');
  if (cq.device !== device) throw invalidValue(`${name} belongs to another device than the protection domain`);
}
