/** Regions for fast registration: allocated once, given memory again and again by work requests. */
import type { Allocation } from '../device/memory.js';
import { VerbsError } from '../errors.js';
import { checkInteger, hex } from './check.js';
import { allocationFor, type RemoteMemory } from './mr.js';
import type { Pd } from './pd.js';
import { Resource } from './resource.js';
import type { Sge } from './wr.js';

/** What a REG_MR names. */
interface Registration {
  readonly rkey: number;
  readonly bytes: Uint8Array;
  readonly iova: number | bigint;
}

/**
 * A memory region whose memory comes by a REG_MR work request and goes by LOCAL_INV, or by the peer's SEND_WITH_INV. Keys,
 * address and length are those of the last REG_MR that was posted: requests that are posted behind it may use them at once.
 *
 * It holds the memory until a later registration has taken effect, or it is closed.
 */
export class FastMr extends Resource {
  readonly kind = 'mr';
  readonly #handle: number;
  #last: Registration | undefined;
  #held: { readonly rkey: number; readonly allocation: Allocation }[] = [];

  /** @internal Use `pd.allocMr`. */
  constructor(readonly pd: Pd) {
    super([pd]);
    const { card } = pd.device;
    this.#handle = card.exports.mrAllocFast(pd.handle);
    if (this.#handle === 0)
      throw new VerbsError('ENOMEM', `no memory region left; the device has ${card.options.maxMr}`);
    this.opened();
  }

  get label(): string {
    return `lkey ${hex(this.lkey)}`;
  }

  get rkey(): number {
    return this.#last?.rkey ?? this.pd.device.card.exports.mrRkey(this.#handle);
  }
  get lkey(): number {
    const { exports } = this.pd.device.card;
    return this.#last ? exports.fastLkey(this.#last.rkey) : exports.mrLkey(this.#handle);
  }
  /** Bytes; 0 before the first registration. */
  get length(): number {
    return this.#last?.bytes.length ?? 0;
  }
  /** Address of the first byte in the card's memory. */
  get addr(): number {
    return this.#last?.bytes.byteOffset ?? 0;
  }
  /** Address of the first byte as the peer names it. */
  get iova(): number | bigint {
    return this.#last?.iova ?? 0;
  }

  /** Whether its keys open anything now: the REG_MR has been carried out, and the keys are not closed. */
  get isValid(): boolean {
    this.assertOpen();
    return this.pd.device.card.exports.mrIsValid(this.#handle);
  }

  /** For the peer. */
  get remote(): RemoteMemory {
    const { iova, rkey, length } = this;
    return { addr: iova <= Number.MAX_SAFE_INTEGER ? Number(iova) : iova, rkey, length };
  }

  /** A piece of the registered memory for `sgList`, by default all from `offset` on. Bytes. @throws RangeError outside of it */
  slice(offset = 0, length = this.length - offset): Sge {
    checkInteger('offset', offset, 0, this.length);
    checkInteger('length', length, 0, this.length - offset);
    return { addr: this.addr + offset, length, lkey: this.lkey };
  }

  /** @internal @throws TypeError for memory that is not the card's */
  checkMemory(bytes: Uint8Array): void {
    const { memory } = this.pd.device;
    memory.release(allocationFor(memory, bytes));
  }

  /** @internal A REG_MR is posted. */
  announce(next: Registration): void {
    const { memory, card } = this.pd.device;
    this.#held.push({ rkey: next.rkey, allocation: allocationFor(memory, next.bytes) });
    this.#last = next;
    const present = card.exports.mrRkey(this.#handle);
    const done = this.#held.findIndex(({ rkey }) => rkey === present);
    if (done > 0) for (const { allocation } of this.#held.splice(0, done)) memory.release(allocation);
  }

  protected free(): void {
    const { memory, card } = this.pd.device;
    if (card.exports.mrDereg(this.#handle) !== 0)
      throw new VerbsError('EBUSY', `${this} has memory windows bound to it; invalidate or close these first`);
    for (const { allocation } of this.#held) memory.release(allocation);
  }
}
