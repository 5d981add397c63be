/** Allocations of the card's memory for the application, with a count of the regions that use each. */
import { native } from '../native.js';
import type { Card } from './card.js';

/** A part of the card's memory. */
export interface Allocation {
  /** Offset in the card's memory. */
  readonly ptr: number;
  /** Bytes. */
  readonly length: number;
}

interface CountedAllocation extends Allocation {
  refs: number;
}

/** Allocates the card's memory and counts references. */
export class CardMemory {
  readonly #allocations = new Map<number, CountedAllocation>();

  constructor(readonly card: Card) {}

  /** Allocates zeroed memory with one reference. @returns undefined if the card has not enough memory left */
  allocate(length: number): Allocation | undefined {
    const ptr = this.card.exports.memAlloc(length);
    if (ptr === 0) return undefined;
    const allocation: CountedAllocation = { ptr, length, refs: 1 };
    this.#allocations.set(ptr, allocation);
    return allocation;
  }

  /** Adds a reference to the allocation that contains all of a part of `buffer`. @returns undefined if none does */
  ref(buffer: ArrayBufferLike, start: number, bytes: number): Allocation | undefined {
    if (buffer !== this.card.bytes.buffer) return undefined;
    for (const allocation of this.#allocations.values()) {
      const { ptr, length } = allocation;
      if (start < ptr || start + bytes > ptr + length) continue;
      allocation.refs++;
      return allocation;
    }
    return undefined;
  }

  /** Removes a reference. The last one frees the memory. */
  unref(allocation: Allocation): void {
    const counted = this.#allocations.get(allocation.ptr);
    if (counted === undefined || --counted.refs > 0) return;
    this.#allocations.delete(allocation.ptr);
    this.card.exports.memFree(allocation.ptr);
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
