/** The descriptor rings of the frame contract (link.ts) as JavaScript walks them. */
import type { Frames, Ring } from './link.js';

/** Bytes of a descriptor. */
export const DESCRIPTOR_BYTES = 16;

/** The card's memory as 32-bit words. One of 4 GiB has 2^30, so bit operations do not do for its bytes. */
export function wordsOf(memory: Uint8Array): Uint32Array {
  return new Uint32Array(memory.buffer, memory.byteOffset, Math.floor(memory.byteLength / 4));
}

/** One end of a ring. Descriptors are named by the free-running cursor, so `consumer` is the oldest filled one. */
export class RingView {
  readonly #words: Uint32Array;
  readonly #producer: number;
  readonly #consumer: number;
  readonly #descriptors: number;
  readonly #mask: number;

  constructor(memory: Uint8Array, ring: Ring) {
    this.#words = wordsOf(memory);
    this.#producer = ring.producer >>> 2;
    this.#consumer = ring.consumer >>> 2;
    this.#descriptors = ring.descriptors >>> 2;
    this.#mask = ring.mask;
  }

  get producer(): number {
    return Atomics.load(this.#words, this.#producer);
  }

  set producer(value: number) {
    Atomics.store(this.#words, this.#producer, value);
  }

  get consumer(): number {
    return Atomics.load(this.#words, this.#consumer);
  }

  set consumer(value: number) {
    Atomics.store(this.#words, this.#consumer, value);
  }

  /** Descriptors that wait for the consumer. */
  get filled(): number {
    return (this.producer - this.consumer) >>> 0;
  }

  /** Descriptors that the producer may fill. */
  get free(): number {
    return this.#mask + 1 - this.filled;
  }

  /** Offset of the descriptor's slot in the memory; the upper half of the u64 is zero below 4 GiB. */
  addr(cursor: number): number {
    return this.#words[this.#at(cursor)] as number;
  }

  length(cursor: number): number {
    return this.#words[this.#at(cursor) + 2] as number;
  }

  options(cursor: number): number {
    return this.#words[this.#at(cursor) + 3] as number;
  }

  /** Names the slot of a descriptor: once for a ring with fixed slots. */
  place(cursor: number, addr: number): void {
    const at = this.#at(cursor);
    this.#words[at] = addr;
    this.#words[at + 1] = 0;
  }

  /** Describes a frame that was written to the descriptor's slot. */
  describe(cursor: number, length: number, options: number): void {
    const at = this.#at(cursor);
    this.#words[at + 2] = length;
    this.#words[at + 3] = options;
  }

  #at(cursor: number): number {
    return this.#descriptors + ((cursor & this.#mask) >>> 0) * (DESCRIPTOR_BYTES / 4);
  }
}

/**
 * The layout of both rings as the addon wants it.
 * @throws RangeError when a ring does not lie inside the memory or is not aligned
 */
export function frameLayout({ memory, tx, rx, slotBytes, icrcOffload }: Frames): Uint32Array {
  for (const [name, ring] of Object.entries({ tx, rx })) {
    const end = ring.descriptors + (ring.mask + 1) * DESCRIPTOR_BYTES;
    const isInside = Math.max(ring.producer + 4, ring.consumer + 4, end) <= memory.length;
    const isAligned = ring.producer % 4 === 0 && ring.consumer % 4 === 0 && ring.descriptors % 8 === 0;
    if (!isInside || !isAligned || ((ring.mask + 1) & ring.mask) !== 0)
      throw new RangeError(`the ${name} ring ${JSON.stringify(ring)} is not in the memory of ${memory.length} bytes`);
  }
  if (slotBytes < 128) throw new RangeError(`slots of ${slotBytes} bytes are too small for a frame`);
  return Uint32Array.of(...words(tx), ...words(rx), slotBytes, icrcOffload ? 1 : 0);
}

function words({ producer, consumer, descriptors, mask }: Ring): number[] {
  return [producer, consumer, descriptors, mask];
}
