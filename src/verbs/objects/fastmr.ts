/** Fast memory regions: allocated once, registered repeatedly by work requests. */

import { checkInteger } from '../../base/options.js';
import { hex } from '../../device/decode.js';
import type { Allocation } from '../../device/memory.js';
import { VerbsError } from '../../errors.js';
import type { Description } from '../diagnose/describe.js';
import type { Sge } from '../work/wr.js';
import type { Domain } from './domain.js';
import { noSlice, type RemoteMemory } from './mr.js';
import { Resource } from './resource.js';

/** Key and memory of a posted REG_MR. */
export interface FastRegistration {
  readonly rkey: number;
  readonly allocation: Allocation;
  readonly addr: number;
  readonly length: number;
  readonly iova: number | bigint;
}

/**
 * A memory region for fast registration (IB_WR_REG_MR in Linux). A REG_MR work request gives it memory; LOCAL_INV or
 * the peer's SEND_WITH_INV invalidates it. `pd.allocMr` creates it.
 *
 * Keys, address and length are those of the last posted REG_MR, so requests posted after it may use them at once. The
 * region keeps its memory allocated until a later registration has taken effect, or until it is closed.
 *
 * @example
 * ```ts
 * const fast = await pd.allocMr();
 * qp.postSend({ opcode: 'REG_MR', mr: fast, buffer: mr, access: ['remoteRead'], signaled: true });
 * throwIfFailed(await cq.next());
 * console.log(fast.remote, fast.isValid);
 * qp.postSend({ opcode: 'LOCAL_INV', invalidateRkey: fast.rkey });
 * ```
 */
export class FastMr extends Resource {
  /** Always `mr`. */
  readonly kind = 'mr';
  readonly #handle: number;
  #lastRegistration: FastRegistration | undefined;
  /** The last one, and those before it that may still be in force. */
  #registrations: FastRegistration[] = [];

  /** @internal Use `pd.allocMr`. */
  constructor(
    /** Protection domain of the region. */
    readonly pd: Domain,
  ) {
    super([pd]);
    const { card } = pd.device;
    this.#handle = card.exports.mrAllocFast(pd.handle);
    if (this.#handle === 0)
      throw new VerbsError('ENOMEM', `no memory region left: the device has ${card.options.maxMr}`);
    this.addToParents();
  }

  /** The region's local key. */
  get label(): string {
    return `lkey ${hex(this.lkey)}`;
  }

  /** Remote key of the last posted REG_MR. */
  get rkey(): number {
    return this.#lastRegistration?.rkey ?? this.pd.device.card.exports.mrRkey(this.#handle);
  }
  /** Local key of the last posted REG_MR. */
  get lkey(): number {
    const { exports } = this.pd.device.card;
    return this.#lastRegistration ? exports.fastLkey(this.#lastRegistration.rkey) : exports.mrLkey(this.#handle);
  }
  /** Length in bytes; 0 before the first registration. */
  get length(): number {
    return this.#lastRegistration?.length ?? 0;
  }
  /** Address of the first byte for `Sge.addr`, as `mr.addr`; 0 before the first registration. */
  get addr(): number {
    return this.#lastRegistration?.addr ?? 0;
  }
  /** Remote address of the first byte, 64 bits. */
  get iova(): number | bigint {
    return this.#lastRegistration?.iova ?? 0;
  }

  /**
   * Whether the keys are valid: the REG_MR has been executed and not invalidated.
   * @throws VerbsError EINVAL after close
   */
  get isValid(): boolean {
    this.assertOpen();
    return this.pd.device.card.exports.mrIsValid(this.#handle);
  }

  /** Address, key and length of the region, for the peer; plain data. */
  get remote(): RemoteMemory {
    const { iova, rkey, length } = this;
    return { addr: iova <= Number.MAX_SAFE_INTEGER ? Number(iova) : iova, rkey, length };
  }

  /**
   * Returns a part of the registered memory as a scatter/gather element.
   * @param offset bytes from the start. Default 0
   * @param length bytes. Default: up to the end
   * @throws TypeError, RangeError when the part is not inside the region
   */
  sge(offset = 0, length = this.length - offset): Sge {
    checkInteger('offset', offset, 0, this.length);
    checkInteger('length', length, 0, this.length - offset);
    return { addr: this.addr + offset, length, lkey: this.lkey };
  }

  /** @internal See `Mr.slice`. @throws TypeError always */
  slice(..._: unknown[]): never {
    throw noSlice();
  }

  /** @internal A REG_MR was posted; its memory is this region's. Releases that of superseded registrations. */
  onRegistrationPosted(next: FastRegistration): void {
    const { memory, card } = this.pd.device;
    this.#registrations.push(next);
    this.#lastRegistration = next;
    const present = card.exports.mrRkey(this.#handle);
    const done = this.#registrations.findIndex(({ rkey }) => rkey === present);
    if (done > 0) for (const { allocation } of this.#registrations.splice(0, done)) memory.unref(allocation);
  }

  /** @internal */
  protected override describe(): Description {
    const { length, lkey, rkey, isValid } = this;
    return { length, lkey, rkey, isValid };
  }

  /** @internal */
  protected free(): void {
    const { memory, card } = this.pd.device;
    if (card.exports.mrDereg(this.#handle) !== 0)
      throw new VerbsError('EBUSY', `${this} has memory windows bound to it: invalidate or close them first`);
    for (const { allocation } of this.#registrations) memory.unref(allocation);
  }
}
