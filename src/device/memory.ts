/** The user's pieces of the card's memory, and how many regions lie over each. */
import type { Card } from './card.js';

export interface Allocation {
  readonly ptr: number;
  readonly length: number;
}

interface Counted extends Allocation {
  users: number;
}

export class CardMemory {
  readonly #allocations = new Map<number, Counted>();

  constructor(readonly card: Card) {}

  /** Zeroed memory with one user, or undefined when the card has none left. */
  allocate(length: number): Allocation | undefined {
    const ptr = this.card.exports.memAlloc(length);
    if (ptr === 0) return undefined;
    const allocation: Counted = { ptr, length, users: 1 };
    this.#allocations.set(ptr, allocation);
    return allocation;
  }

  /** One more user for the allocation that holds all of `bytes`; undefined when none does. */
  share(bytes: Uint8Array): Allocation | undefined {
    if (bytes.buffer !== this.card.bytes.buffer) return undefined;
    const start = bytes.byteOffset;
    for (const allocation of this.#allocations.values()) {
      const { ptr, length } = allocation;
      if (start < ptr || start + bytes.length > ptr + length) continue;
      allocation.users++;
      return allocation;
    }
    return undefined;
  }

  /** One user less; the memory goes back to the card with the last. */
  release(allocation: Allocation): void {
    const counted = this.#allocations.get(allocation.ptr);
    if (counted === undefined || --counted.users > 0) return;
    this.#allocations.delete(allocation.ptr);
    this.card.exports.memFree(allocation.ptr);
  }
}
