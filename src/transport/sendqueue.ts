/** Requests of a queue pair: a bounded number is in flight, each with registered memory and a promise. */

import { checkWait, type WaitOptions, waitFor } from '../base/waiting.js';
import { WcStatus } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import { WcError } from '../verbs/diagnose/explain.js';
import { copyInto } from '../verbs/objects/copy.js';
import type { Qp } from '../verbs/objects/qp.js';
import type { Wc } from '../verbs/work/wc.js';
import type { SendWr, Sge } from '../verbs/work/wr.js';
import { SendBuffer, type SendPool } from './pools/sendpool.js';

/** The work request of a request, whose completion settles the promise. */
export type Request = SendWr & { readonly wrId: number; readonly signaled: true };

/**
 * Makes a work request. Returns one literal, without spreads: for an object that others are spread into, V8 may make a
 * hidden class each time.
 */
export type BuildRequest = (slot: Slot, wrId: number) => Request;

/** Lets the caller cancel a request that has not been posted yet. */
interface Cancellation {
  isCancelled: boolean;
}

/** The right to have one request in flight, with memory for its outgoing data or its response. */
export interface Slot {
  readonly bytes: Buffer;
  /** Returns the first `length` bytes as a scatter/gather element. */
  sge(length: number): Sge;
}

/** A slot with memory that is not of the pool. */
export interface SlotInPlace extends Slot {
  /** A request has the slot, which is going to be posted. */
  take(): void;
  /** The request is complete, or was not posted, or its queue pair is in ERR. */
  release(): void;
}

/** The slot of a request without memory of ours. */
const WITHOUT_MEMORY: SlotInPlace = {
  bytes: Buffer.alloc(0),
  sge: () => ({ addr: 0, length: 0, lkey: 0 }),
  take() {},
  release() {},
};

/** A slot that a request has. */
type TakenSlot = SendBuffer | SlotInPlace;

interface SlotWaiter {
  readonly cancellation: Cancellation;
  readonly memory: number | SlotInPlace;
  resolve(slot: TakenSlot): void;
  reject(error: unknown): void;
}

interface InFlight {
  resolve(): void;
  reject(error: unknown): void;
}

export class SendQueue {
  readonly #qp: Qp;
  readonly #pool: SendPool;
  /** Requests that may be in flight. */
  readonly #count: number;
  #waiting: SlotWaiter[] = [];
  /**
   * Requests in flight, by their `wrId`. Not a Map: its tables outlive several collections of garbage when it changes
   * with every request.
   */
  readonly #inFlight: (InFlight | undefined)[] = [];
  readonly #freeIds: number[] = [];
  /** Slots in use, and the bytes of their memory. */
  #used = 0;
  #heldBytes = 0;
  readonly #idle: (() => void)[] = [];
  #isPaused = false;
  #endReason: { readonly error: Error } | undefined;

  /** @param pool has the memory @param count requests that may be in flight */
  constructor(qp: Qp, pool: SendPool, count: number) {
    this.#qp = qp;
    this.#pool = pool;
    this.#count = count;
  }

  /**
   * Posts a request as soon as a slot is free, in order. If the wait ends before that, the request is not sent and the
   * caller may change its data.
   * @param timeoutText start of the ETIMEDOUT message
   * @param memory bytes of the pool that the request needs at least, or memory of the caller; 0 = none
   * @param build makes the work request when it is posted, at once if a slot is free; its exception rejects the promise
   * @param finish makes the result after the completion
   */
  async submit<T>(
    timeoutText: string,
    wait: WaitOptions,
    memory: number | SlotInPlace,
    build: BuildRequest,
    finish: (slot: Slot) => T,
  ): Promise<T> {
    checkWait(wait);
    const cancellation = { isCancelled: false };
    return waitFor(this.#execute(cancellation, memory, build, finish), timeoutText, wait, () => {
      cancellation.isCancelled = true;
      this.#waiting = this.#waiting.filter((other) => other.cancellation !== cancellation);
      this.#resolveIdle();
    });
  }

  /** From now on requests wait, until `resume`: the queue pair cannot send yet. */
  pause(): void {
    this.#isPaused = true;
  }

  /** Posts the requests that wait. */
  resume(): void {
    this.#isPaused = false;
    this.#serve();
  }

  async #execute<T>(
    cancellation: Cancellation,
    memory: number | SlotInPlace,
    build: BuildRequest,
    finish: (slot: Slot) => T,
  ): Promise<T> {
    const isFirst = this.#waiting.length === 0 && this.#endReason === undefined;
    const slot = (isFirst ? this.#takeSlot(memory) : undefined) ?? (await this.#waitForSlot(cancellation, memory));
    const id = this.#freeIds.pop() ?? this.#inFlight.length;
    this.#inFlight[id] = undefined;
    try {
      if (this.#endReason !== undefined) throw this.#endReason.error;
      // Cancelled between getting the slot and this microtask.
      if (cancellation.isCancelled) throw new VerbsError('ECANCELED', 'cancelled before it was sent');
      const done = new Promise<void>((resolve, reject) => {
        this.#inFlight[id] = { resolve, reject };
      });
      this.#qp.postSend(build(slot, id));
      await done;
      return finish(slot);
    } finally {
      this.#inFlight[id] = undefined;
      this.#freeIds.push(id);
      this.#releaseSlot(slot);
    }
  }

  /**
   * Settles the request of a completion. A flush error only says that the queue pair is in ERR. The connection manager
   * (the peer disconnected) or an asynchronous event soon gives the reason, and until then the request stays pending.
   * @returns the error, if the request failed by itself and not because the connection has ended
   */
  complete(wc: Wc): WcError | undefined {
    if (wc.status === WcStatus.WR_FLUSH_ERR && this.#endReason === undefined) return undefined;
    const request = this.#inFlight[wc.wrId];
    if (wc.ok) {
      request?.resolve();
      return undefined;
    }
    const error = this.#endReason === undefined ? completionError(wc) : undefined;
    request?.reject(error ?? this.#endReason?.error);
    return error;
  }

  /** Refuses further requests. Waiting requests, and those that fail from now on, fail with the error of the reason. */
  end(reason: { readonly error: Error }): void {
    this.#endReason ??= reason;
    for (const { reject } of this.#waiting.splice(0)) reject(this.#endReason.error);
    this.#resolveIdle();
  }

  /** Fails the requests in flight as well; no more completions will come. */
  failInFlight(): void {
    for (const request of this.#inFlight)
      request?.reject(this.#endReason?.error ?? new VerbsError('ECANCELED', `${this.#qp} was closed`));
  }

  /** The requests that wait for a slot, and the bytes of memory that they need. */
  get waiting(): { readonly count: number; readonly bytes: number } {
    const bytes = this.#waiting.reduce((sum, { memory }) => sum + (typeof memory === 'number' ? memory : 0), 0);
    return { count: this.#waiting.length, bytes };
  }

  /** Resolves when no request is in flight or waiting. */
  idle(): Promise<void> {
    if (this.#isIdle) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }

  get #isIdle(): boolean {
    return this.#waiting.length === 0 && this.#used === 0;
  }

  /** @returns undefined when the request has to wait @throws VerbsError ENOMEM as `SendPool.take` */
  #takeSlot(memory: number | SlotInPlace): TakenSlot | undefined {
    if (this.#isPaused || this.#used >= this.#count) return undefined;
    const slot = memory === 0 ? WITHOUT_MEMORY : memory;
    if (typeof slot !== 'number') {
      this.#used++;
      slot.take();
      return slot;
    }
    const buffer = this.#pool.take(slot, this.#heldBytes);
    if (buffer === undefined) {
      // Otherwise the completion of an own request serves the next one.
      if (this.#used === 0) this.#pool.wait(this.#serve);
      return undefined;
    }
    this.#used++;
    this.#heldBytes += buffer.bytes.length;
    return buffer;
  }

  #waitForSlot(cancellation: Cancellation, memory: number | SlotInPlace): Promise<TakenSlot> {
    if (this.#endReason !== undefined) return Promise.reject(this.#endReason.error);
    return new Promise((resolve, reject) => this.#waiting.push({ cancellation, memory, resolve, reject }));
  }

  /** Gives free slots to the requests that wait, in order. @returns whether no request waits for memory any more */
  readonly #serve = (): boolean => {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      try {
        const slot = this.#takeSlot(next.memory);
        if (slot === undefined) return this.#used > 0 || this.#isPaused;
        next.resolve(slot);
      } catch (error) {
        next.reject(error);
      }
      this.#waiting.shift();
    }
    return true;
  };

  #releaseSlot(slot: TakenSlot): void {
    this.#used--;
    if (slot instanceof SendBuffer) {
      this.#heldBytes -= slot.bytes.length;
      this.#pool.release(slot);
    } else slot.release();
    this.#serve();
    this.#resolveIdle();
  }

  #resolveIdle(): void {
    if (this.#isIdle) for (const resolve of this.#idle.splice(0)) resolve();
  }
}

export function completionError(wc: Wc): WcError {
  return new WcError(wc.explain());
}

/** Returns the bytes of a slot that `stage` needs. */
export function memoryFor(data: Uint8Array | Sge): number {
  return data instanceof Uint8Array ? Math.max(data.length, 1) : 0;
}

/** Returns the data as registered memory, copying bytes to the slot unless they are in place. */
export function stage(slot: Slot, data: Uint8Array | Sge): Sge {
  if (!(data instanceof Uint8Array)) return data;
  if (slot instanceof SendBuffer) copyInto(slot.bytes, data);
  return slot.sge(data.length);
}
