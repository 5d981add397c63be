/** The memory that can be registered: allocations of the card's memory, and memory of the program outside of it. */
import { bufferOf, lengthOf, offsetOf } from '../base/intrinsics.js';
import { native } from '../native.js';
import type { Card } from './card.js';
import { REGION_SPAN } from './regions.js';

/** Memory that regions use, with a count of them. */
export interface Allocation {
  /** Address of the first byte for the card: an offset in its memory, or a place (assembly/host/place.ts). */
  readonly addr: number;
  /** Bytes. */
  readonly length: number;
  /** Number of the region outside of the card's memory; 0 = in it. */
  readonly region: number;
}

/** A part of an allocation. */
export interface MemoryPart {
  readonly offset: number;
  readonly bytes: number;
}

interface CountedAllocation extends Allocation {
  refs: number;
}

/** Allocates the card's memory, lets the card reach other memory, and counts references to both. */
export class CardMemory {
  readonly #allocations = new Map<number, CountedAllocation>();

  constructor(readonly card: Card) {}

  /** Allocates zeroed memory with one reference. @returns undefined if the card has not enough memory left */
  allocate(length: number): Allocation | undefined {
    const ptr = this.card.exports.memAlloc(length);
    if (ptr === 0) return undefined;
    return this.#add({ addr: ptr, length, region: 0, refs: 1 });
  }

  /** Returns whether bytes lie in the card's memory. */
  contains(bytes: Uint8Array): boolean {
    return bufferOf(bytes) === this.card.bytes.buffer;
  }

  /**
   * Adds a reference to the allocation in the card's memory that contains all of the bytes.
   * @returns undefined if none does
   */
  refAround(bytes: Uint8Array): Allocation | undefined {
    const start = offsetOf(bytes);
    for (const allocation of this.#allocations.values()) {
      const { addr, length, region } = allocation;
      if (region !== 0 || start < addr || start + lengthOf(bytes) > addr + length) continue;
      this.ref(allocation);
      return allocation;
    }
    return undefined;
  }

  /**
   * Lets the card reach memory outside of its own, with one reference.
   * @param bytes not of a resizable ArrayBuffer
   * @throws as `Regions.add`
   */
  reach(bytes: Uint8Array, isWritable: boolean): Allocation {
    const region = this.card.exclusively(() => this.card.regions.add(bytes, isWritable));
    return this.#add({ addr: region * REGION_SPAN, length: lengthOf(bytes), region, refs: 1 });
  }

  /** Changes whether the card may write memory outside of its own. */
  setWritable({ region }: Allocation, isWritable: boolean): void {
    if (region !== 0) this.card.exclusively(() => this.card.regions.setWritable(region, isWritable));
  }

  /**
   * Exchanges memory outside of the card's own for other memory, under the same places. The card does not touch the
   * program's memory any more.
   * @param parts that are copied, as they are now; the others are zero
   * @throws RangeError if the system has not enough memory
   */
  copyAway({ addr, length, region }: Allocation, parts: Iterable<MemoryPart>): void {
    if (region === 0) return;
    // the system provides only the pages that are copied
    const copy = new Uint8Array(length);
    this.card.exclusively(() => {
      for (const { offset, bytes } of parts)
        this.card.regions.read(addr + offset, copy.subarray(offset, offset + bytes));
      this.card.regions.move(region, copy);
    });
  }

  /** Adds a reference. */
  ref(allocation: Allocation): void {
    const counted = this.#allocations.get(allocation.addr);
    if (counted !== undefined) counted.refs++;
  }

  /** Removes a reference. The last one frees the memory, or takes it from the card. */
  unref(allocation: Allocation): void {
    const { addr, region } = allocation;
    const counted = this.#allocations.get(addr);
    if (counted === undefined || --counted.refs > 0) return;
    this.#allocations.delete(addr);
    if (region === 0) this.card.exports.memFree(addr);
    else this.card.exclusively(() => this.card.regions.remove(region));
  }

  #add(allocation: CountedAllocation): Allocation {
    this.#allocations.set(allocation.addr, allocation);
    return allocation;
  }
}

/**
 * Gives the memory of a closed card back to the system at once; nothing may use the card any more. The garbage
 * collector, which does not know how large it is, would take its time. Without the addon nothing happens.
 */
export function releaseMemory(card: Card): void {
  try {
    native().releasePages(card.bytes);
  } catch {
    // the memory link works without the addon
  }
}
