/** Shared receive queues: one stock of receives for many queue pairs. */
import { Errno, LIMITS } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import { checkInteger, show } from './check.js';
import type { Device } from './context.js';
import type { Pd } from './pd.js';
import { postRecv, type Receives } from './post.js';
import { Resource } from './resource.js';
import type { RecvWr } from './wr.js';

export interface SrqOptions {
  /** Requests that it holds, 1..32768. Default 64. */
  readonly maxWr?: number;
  /** Pieces of a request, 1..32. Default 4. */
  readonly maxSge?: number;
  /** One SRQ_LIMIT_REACHED event when fewer requests than so many are left. Default 0: none. */
  readonly srqLimit?: number;
}

export interface SrqAttributes {
  /** A new size; what is posted stays, in order. */
  readonly maxWr?: number;
  /** Arms the limit anew; 0 = no event. */
  readonly srqLimit?: number;
}

export interface SrqInfo {
  /** As granted: not less than asked for. */
  readonly maxWr: number;
  readonly maxSge: number;
  /** 0 when no event is awaited, also after it has come. */
  readonly srqLimit: number;
  /** Requests that no message has taken yet. */
  readonly pending: number;
}

/**
 * A shared receive queue. `pd.createSrq` makes it and `pd.createQp({srq})` uses it; the memory of its requests must be
 * registered in its own protection domain.
 *
 * Events: `event` (SRQ_LIMIT_REACHED).
 */
export class Srq extends Resource {
  readonly kind = 'srq';
  readonly device: Device;
  readonly label: string;
  readonly #handle: number;
  readonly #receives: Receives;

  /** @internal Use `pd.createSrq`. */
  constructor(
    readonly pd: Pd,
    number: number,
    { maxWr = 64, maxSge = 4, srqLimit = 0 }: SrqOptions,
  ) {
    super([pd]);
    const { device } = pd;
    this.device = device;
    this.label = String(number);
    const { exports } = device.card;
    checkInteger('maxWr', maxWr, 1, LIMITS.maxWr);
    checkInteger('maxSge', maxSge, 1, LIMITS.maxSge);
    checkInteger('srqLimit', srqLimit, 0, maxWr);
    this.#handle = exports.srqCreate(pd.handle, maxWr, maxSge);
    if (this.#handle === 0) throw new VerbsError('ENOMEM', `no memory for a shared receive queue of ${maxWr} requests`);
    exports.srqLimit(this.#handle, srqLimit);
    this.#receives = receivesOf(this, this.#handle, maxSge);
    device.registerSrq(this.#handle, this);
    this.opened();
  }

  /** @internal */
  get handle(): number {
    return this.#handle;
  }

  /** Size, limit and what is posted. */
  query(): SrqInfo {
    this.assertOpen();
    const { exports } = this.device.card;
    return {
      maxWr: exports.srqEntries(this.#handle),
      maxSge: this.#receives.maxRecvSge,
      srqLimit: exports.srqCurrentLimit(this.#handle),
      pending: exports.srqFilled(this.#handle),
    };
  }

  /**
   * Changes size and limit, the size first (ibv_modify_srq).
   * @throws TypeError, RangeError for wrong values; VerbsError EINVAL when more is posted than would fit, or the limit is
   * higher than the size; ENOMEM. What comes first may have been done then
   */
  async modify({ maxWr, srqLimit }: SrqAttributes): Promise<void> {
    this.assertOpen();
    const { exports } = this.device.card;
    if (maxWr !== undefined) {
      checkInteger('maxWr', maxWr, 1, LIMITS.maxWr);
      const refused = exports.srqResize(this.#handle, maxWr);
      if (refused === Errno.ENOMEM) throw new VerbsError('ENOMEM', `no memory for ${maxWr} requests in ${this}`);
      if (refused !== 0) {
        const { pending, srqLimit: limit } = this.query();
        throw new VerbsError('EINVAL', `maxWr ${maxWr} of ${this}, which has ${pending} pending and srqLimit ${limit}`);
      }
    }
    if (srqLimit === undefined) return;
    checkInteger('srqLimit', srqLimit, 0, LIMITS.maxWr);
    if (exports.srqLimit(this.#handle, srqLimit) !== 0)
      throw new VerbsError('EINVAL', `srqLimit ${srqLimit} of ${this}, which holds ${this.query().maxWr} requests`);
  }

  /**
   * Posts one or more receive work requests; messages to any of its queue pairs take them in order. Allocates nothing.
   * @throws TypeError, RangeError for wrong requests; VerbsError ENOMEM (queue full), EINVAL. Of an array the requests
   * before the refused one are posted; the error's `badWr` is its index
   */
  postRecv(wr: RecvWr | readonly RecvWr[]): void {
    this.assertOpen();
    const { card } = this.device;
    const list = Array.isArray(wr) ? (wr as readonly RecvWr[]) : undefined;
    if (list === undefined) {
      postRecv(card, this.#receives, wr as RecvWr);
      return;
    }
    for (let i = 0; i < list.length; i++) {
      try {
        postRecv(card, this.#receives, list[i] as RecvWr);
      } catch (error) {
        throw Object.assign(error as Error, { badWr: i });
      }
    }
  }

  protected free(): void {
    if (this.device.card.exports.srqDestroy(this.#handle) !== 0) throw new VerbsError('EBUSY', `${this} is in use`);
    this.device.forgetSrq(this.#handle);
  }
}

function receivesOf(srq: Srq, handle: number, maxRecvSge: number): Receives {
  const { exports } = srq.device.card;
  return {
    handle,
    isShared: true,
    maxRecvSge,
    get maxRecvWr() {
      return exports.srqEntries(handle);
    },
    state: '',
    toString: () => srq.toString(),
  };
}

/** @throws TypeError when it is no shared receive queue of the device */
export function checkSrq(srq: unknown, device: Device): void {
  if (!(srq instanceof Srq)) throw new TypeError(`srq is ${show(srq)}, must be a shared receive queue`);
  if (srq.device !== device) throw new TypeError('srq belongs to another device than the protection domain');
}
