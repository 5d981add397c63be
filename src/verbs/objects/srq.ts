/** Shared receive queues: one queue of receives for many queue pairs. */

import type { EventEmitter } from 'node:events';
import { type Checks, checkInteger, checkOptions, integer, wrongType } from '../../base/options.js';
import { Errno, LIMITS } from '../../device/codes.js';
import { invalidValue, VerbsError } from '../../errors.js';
import type { Description } from '../diagnose/describe.js';
import { postRecv, type RecvQueue } from '../work/post.js';
import type { RecvWr } from '../work/wr.js';
import type { DeviceBase } from './devicebase.js';
import type { Pd } from './pd.js';
import { Resource } from './resource.js';

/** Options of `pd.createSrq` (ibv_srq_init_attr). */
export interface SrqOptions {
  /** Work requests that the queue holds, 1..32768. Default 64. */
  readonly maxWr?: number;
  /** Scatter/gather elements per work request, 1..32. Default 4. */
  readonly maxSge?: number;
  /** Reports one SRQ_LIMIT_REACHED event when fewer requests than this are left; 0 = no event. Default 0. */
  readonly srqLimit?: number;
}

/** Changes by `srq.modify`; omitted properties stay unchanged. */
export interface SrqAttributes {
  /** New size, 1..32768. Posted requests are kept, in order. */
  readonly maxWr?: number;
  /** Sets and re-arms the limit; 0 = no event. */
  readonly srqLimit?: number;
}

const SIZE = { maxWr: integer(1, LIMITS.maxWr), srqLimit: integer(0, LIMITS.maxWr) };
const CHECKS: Checks<SrqOptions> = { ...SIZE, maxSge: integer(1, LIMITS.maxSge) };
const MODIFY_CHECKS: Checks<SrqAttributes> = SIZE;

/** Size, limit and fill level of a shared receive queue, from `srq.query()` (ibv_query_srq). */
export interface SrqInfo {
  /** Work requests that the queue holds, as granted: at least as many as requested. */
  readonly maxWr: number;
  /** Scatter/gather elements per work request. */
  readonly maxSge: number;
  /** Armed limit; 0 = not armed, as after the event. */
  readonly srqLimit: number;
  /** Posted work requests that no message has consumed yet. */
  readonly pending: number;
}

/** The asynchronous event of a shared receive queue: fewer than `srqLimit` receives are left. */
export interface SrqEvent {
  /** Always `SRQ_LIMIT_REACHED`. */
  readonly type: 'SRQ_LIMIT_REACHED';
  /** The shared receive queue concerned. */
  readonly srq: Srq;
}

export interface Srq extends EventEmitter<{ event: [event: SrqEvent] }> {}

/**
 * A shared receive queue (ibv_srq). `pd.createSrq` creates it, `pd.createQp({ srq })` uses it. The memory of its
 * requests must be registered in its own protection domain.
 *
 * Events: `event` (SRQ_LIMIT_REACHED).
 *
 * @example
 * ```ts
 * const srq = await pd.createSrq({ maxWr: 512, srqLimit: 64 });
 * for (let i = 0; i < 512; i++) srq.postRecv({ wrId: i, sgList: mr.sge(64 * i, 64) });
 * srq.on('event', () => srq.postRecv({ wrId: 512, sgList: mr.sge(0, 64) }));
 * const qp = await pd.createQp({ sendCq: cq, srq });
 * console.log(qp.srq?.query().pending);
 * ```
 */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: the base class is an emitter
export class Srq extends Resource {
  /** Always `srq`. */
  readonly kind = 'srq';
  /** Device of the queue. */
  readonly device: DeviceBase;
  /** Number of the queue on its device. */
  readonly label: string;
  readonly #handle: number;
  readonly #recvQueue: RecvQueue;

  /** @internal Use `pd.createSrq`. */
  constructor(
    /** Protection domain of the queue. */
    readonly pd: Pd,
    number: number,
    options: SrqOptions,
  ) {
    super([pd]);
    const { maxWr = 64, maxSge = 4, srqLimit = 0 } = checkOptions('createSrq', options, CHECKS);
    const { device } = pd;
    this.device = device;
    this.label = String(number);
    const { exports } = device.card;
    checkInteger('srqLimit', srqLimit, 0, maxWr);
    this.#handle = exports.srqCreate(pd.handle, maxWr, maxSge);
    if (this.#handle === 0) throw new VerbsError('ENOMEM', `no memory for a shared receive queue of ${maxWr} requests`);
    exports.srqLimit(this.#handle, srqLimit);
    this.#recvQueue = new SrqReceives(this, maxSge);
    device.register(this.#handle, this);
    this.addToParents();
  }

  /** @internal */
  get handle(): number {
    return this.#handle;
  }

  /** Returns size, limit and number of posted requests (ibv_query_srq). @throws VerbsError EINVAL after close */
  query(): SrqInfo {
    this.assertOpen();
    const { exports } = this.device.card;
    return {
      maxWr: exports.srqEntries(this.#handle),
      maxSge: this.#recvQueue.maxRecvSge,
      srqLimit: exports.srqCurrentLimit(this.#handle),
      pending: exports.srqFilled(this.#handle),
    };
  }

  /**
   * Changes size and limit, in this order (ibv_modify_srq). If the limit is refused, the size is changed already.
   * @throws TypeError, RangeError for wrong values; VerbsError EINVAL when more requests are posted than would fit, or
   * the limit exceeds the size; ENOMEM when memory is exhausted
   */
  async modify(attributes: SrqAttributes): Promise<void> {
    const { maxWr, srqLimit } = checkOptions('srq.modify', attributes, MODIFY_CHECKS);
    this.assertOpen();
    const { exports } = this.device.card;
    if (maxWr !== undefined) {
      const refused = exports.srqResize(this.#handle, maxWr);
      if (refused === Errno.ENOMEM) throw new VerbsError('ENOMEM', `no memory to resize ${this} to ${maxWr} requests`);
      if (refused !== 0) {
        const { pending, srqLimit: limit } = this.query();
        throw new VerbsError(
          'EINVAL',
          `maxWr is ${maxWr}, must fit the ${pending} pending requests and srqLimit ${limit} of ${this}`,
        );
      }
    }
    if (srqLimit === undefined) return;
    if (exports.srqLimit(this.#handle, srqLimit) !== 0)
      throw new VerbsError(
        'EINVAL',
        `srqLimit is ${srqLimit}, must be at most the ${this.query().maxWr} requests that ${this} holds`,
      );
  }

  /**
   * Posts one or more receive work requests (ibv_post_srq_recv). Messages to any of the queue pairs consume them in
   * order. Allocates nothing.
   *
   * After an error in an array, the requests before the refused one are posted; the error's `badWr` is its index.
   * @throws TypeError, RangeError for wrong requests; VerbsError ENOMEM when the queue is full, EINVAL after close
   */
  postRecv(wr: RecvWr | readonly RecvWr[]): void {
    this.assertOpen();
    const { card } = this.device;
    const list = Array.isArray(wr) ? (wr as readonly RecvWr[]) : undefined;
    if (list === undefined) {
      postRecv(card, this.#recvQueue, wr as RecvWr);
      return;
    }
    for (let i = 0; i < list.length; i++) {
      try {
        postRecv(card, this.#recvQueue, list[i] as RecvWr);
      } catch (error) {
        throw Object.assign(error as Error, { badWr: i });
      }
    }
  }

  /** @internal Leaves so many requests to queue pairs that hold none: see `qp.limitReceives`. */
  reserve(requests: number): void {
    this.device.card.exports.srqReserve(this.#handle, requests);
  }

  /** @internal */
  protected override describe(): Description {
    return { ...this.query() };
  }

  /** @internal */
  protected free(): void {
    if (this.device.card.exports.srqDestroy(this.#handle) !== 0) throw new VerbsError('EBUSY', `${this} is in use`);
    this.device.unregister(this.#handle, this);
  }
}

/** The queue as posting needs it. */
class SrqReceives implements RecvQueue {
  readonly handle: number;
  readonly isShared = true;
  readonly state = '';
  readonly #srq: Srq;

  constructor(
    srq: Srq,
    readonly maxRecvSge: number,
  ) {
    this.#srq = srq;
    this.handle = srq.handle;
  }

  get maxRecvWr(): number {
    return this.#srq.device.card.exports.srqEntries(this.handle);
  }

  assertOpen(): void {
    this.#srq.assertOpen();
  }

  toString(): string {
    return this.#srq.toString();
  }
}

/** @throws TypeError unless `srq` is a shared receive queue of the device */
export function checkSrq(srq: unknown, device: DeviceBase): void {
  if (!(srq instanceof Srq)) throw wrongType('srq', srq, 'a shared receive queue');
  if (srq.device !== device) throw invalidValue('srq belongs to another device than the protection domain');
}
