/** Completion queues. */

import { Errno, LIMITS } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import { checkInteger, show } from './check.js';
import type { Device } from './context.js';
import { Resource } from './resource.js';
import { checkWait, orGiveUp, type WaitOptions } from './waiting.js';
import { Wc } from './wc.js';

export interface CqOptions {
  /** Completions that it holds at least, 1..4194304. When more are pending it overruns, which ends it. Default 256. */
  readonly cqe?: number;
}

interface Waiter {
  resolve(wc: Wc): void;
  reject(error: unknown): void;
}

/**
 * A completion queue. Three ways to learn of completions: `poll` (spins, allocates nothing), `next` and `for await`
 * (sleep in the event loop), and `arm` with the event `completion`.
 *
 * Events: `completion` (once after `arm`), `event` (an asynchronous event about this queue).
 */
export class Cq extends Resource {
  readonly kind = 'cq';
  readonly label: string;
  readonly #handle: number;
  #cqe: number;
  #waiters: Waiter[] = [];
  #armedByUser = false;
  #overrun = false;

  /** @internal Use `device.createCq`. */
  constructor(
    readonly device: Device,
    number: number,
    { cqe = 256 }: CqOptions,
  ) {
    super([device]);
    this.label = String(number);
    this.#cqe = checkInteger('cqe', cqe, 1, LIMITS.maxCqe);
    this.#handle = device.card.exports.cqCreate(cqe);
    if (this.#handle === 0) throw new VerbsError('ENOMEM', `no memory for a completion queue of ${cqe} entries`);
    device.registerCq(this.#handle, this);
    this.opened();
  }

  /** @internal */
  get handle(): number {
    return this.#handle;
  }

  /** Completions that it holds. */
  get cqe(): number {
    return this.#cqe;
  }

  /**
   * Makes room for more or fewer completions (ibv_resize_cq); those that are pending stay. One that has overrun stays so.
   * @param cqe 1..4194304
   * @throws TypeError, RangeError; VerbsError EINVAL when more are pending, ENOMEM; nothing is changed then
   */
  async resize(cqe: number): Promise<void> {
    this.assertOpen();
    checkInteger('cqe', cqe, 1, LIMITS.maxCqe);
    const { exports } = this.device.card;
    const refused = exports.cqResize(this.#handle, cqe);
    if (refused === Errno.ENOMEM) throw new VerbsError('ENOMEM', `no memory for ${cqe} completions in ${this}`);
    if (refused !== 0)
      throw new VerbsError('EINVAL', `cqe ${cqe} of ${this}, which has ${exports.cqFilled(this.#handle)} pending`);
    this.#cqe = cqe;
  }

  /** `count` completions to poll into. */
  createWcs(count: number): Wc[] {
    return Array.from({ length: checkInteger('count', count, 1, LIMITS.maxCqe) }, () => new Wc());
  }

  /**
   * Takes completions, oldest first, as many as there are and fit. Inline it runs a turn of the device when there are none,
   * so a program may spin on it; it never waits. Allocates nothing.
   * @param into completions to overwrite
   * @returns how many of them were filled
   * @throws VerbsError EIO when the queue has overrun and all that it still held was taken, or when the device has failed
   */
  poll(into: readonly Wc[]): number {
    this.assertOpen();
    let count = this.#take(into);
    if (count > 0) return count;
    this.device.engine.poll();
    this.assertOpen();
    count = this.#take(into);
    if (count === 0 && this.#overrun) throw this.#overrunError();
    return count;
  }

  /**
   * Asks for one `completion` event: at the next completion, or at the next one that is solicited or failed. Poll once
   * more after arming; what came before does not ring. While somebody waits in `next`, `solicitedOnly` has no effect.
   */
  arm(solicitedOnly = false): void {
    this.assertOpen();
    this.#armedByUser = true;
    this.device.card.exports.cqArm(this.#handle, solicitedOnly && this.#waiters.length === 0);
  }

  /**
   * The next completion; waits for it in the event loop and keeps the process running meanwhile.
   * @throws the signal's reason; VerbsError ETIMEDOUT, ECANCELED when the queue is closed, EIO when it has overrun
   */
  next(wait: WaitOptions = {}): Promise<Wc> {
    try {
      this.assertOpen();
      checkWait(wait);
      const wc = this.#waiters.length === 0 ? this.#takeOne() : undefined;
      if (wc !== undefined) return Promise.resolve(wc);
      if (this.#overrun) throw this.#overrunError();
    } catch (error) {
      return Promise.reject(error);
    }
    return this.#wait(wait);
  }

  /** All completions from now on, each an object of its own. Ends when the queue is closed. */
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

  [Symbol.asyncIterator](): AsyncGenerator<Wc, void, void> {
    return this.completions();
  }

  /** @internal The card rang: a completion came. */
  onCompletion(): void {
    this.#serve();
    if (!this.#armedByUser) return;
    this.#armedByUser = false;
    process.nextTick(() => this.emit('completion'));
  }

  /** @internal The card dropped a completion. */
  onOverrun(): void {
    this.#overrun = true;
    this.onCompletion();
    for (const waiter of this.#waiters.splice(0)) waiter.reject(this.#overrunError());
  }

  /** @internal Nothing will come any more. */
  onFailure(reason: string): void {
    for (const waiter of this.#waiters.splice(0)) waiter.reject(new VerbsError('EIO', reason));
  }

  protected free(): void {
    const { exports } = this.device.card;
    if (exports.cqDestroy(this.#handle) !== 0) throw new VerbsError('EBUSY', `${this} is in use`);
    this.device.forgetCq(this.#handle);
    for (const waiter of this.#waiters.splice(0))
      waiter.reject(new VerbsError('ECANCELED', `${this} was closed while a completion was awaited`));
  }

  #take(into: readonly Wc[]): number {
    const { card } = this.device;
    const { exports } = card;
    let count = 0;
    while (count < into.length) {
      const at = exports.cqPeek(this.#handle);
      if (at === 0) break;
      (into[count++] as Wc).read(card, at, this.device);
      exports.cqPop(this.#handle);
    }
    return count;
  }

  #takeOne(): Wc | undefined {
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
    let waiter: Waiter | undefined;
    const next = new Promise<Wc>((resolve, reject) => {
      waiter = { resolve, reject };
      this.#waiters.push(waiter);
    });
    engine.hold();
    this.#serve();
    const leave = () => {
      this.#waiters = this.#waiters.filter((other) => other !== waiter);
    };
    return orGiveUp(next, `no completion on ${this}`, wait, leave).finally(() => engine.release());
  }

  /** Gives waiters what there is; while one is left the queue is armed. */
  #serve(): void {
    const { exports } = this.device.card;
    while (this.#waiters.length > 0) {
      const wc = this.#takeOne();
      if (wc !== undefined) {
        this.#waiters.shift()?.resolve(wc);
        continue;
      }
      exports.cqArm(this.#handle, false);
      // What came just before does not ring.
      if (exports.cqPeek(this.#handle) === 0) return;
    }
  }

  #overrunError(): VerbsError {
    return new VerbsError('EIO', `${this} overran: more than ${this.cqe} completions were pending and some are lost`);
  }
}

/** @internal @throws TypeError for what is no completion queue of the device */
export function checkCq(name: string, cq: unknown, device: Device): void {
  if (!(cq instanceof Cq)) throw new TypeError(`${name} is ${show(cq)}, must be a completion queue`);
  if (cq.device !== device) throw new TypeError(`${name} belongs to another device than the protection domain`);
}
