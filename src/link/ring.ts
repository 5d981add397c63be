/** Access to the descriptor rings of the frame contract (link.ts). */
import { outOfRange } from '../errors.js';
import type { Frames, Ring } from './frames.js';

/** Bytes of a descriptor. */
export const DESCRIPTOR_BYTES = 16;
/** Alignment of slots, and the bytes that a cursor has for itself: a cache line. */
const CACHE_LINE = 64;

/**
 * Returns the card's memory as 32-bit words. Byte offsets in a memory of 4 GiB do not fit the signed 32-bit integers of
 * bit operations; word indexes do.
 */
export function wordsOf(memory: Uint8Array): Uint32Array {
  return new Uint32Array(memory.buffer, memory.byteOffset, Math.floor(memory.byteLength / 4));
}

/**
 * A view of a ring. A free-running cursor names each descriptor; `consumer` is that of the oldest filled descriptor.
 */
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

  /** Number of filled descriptors. */
  get filled(): number {
    return (this.producer - this.consumer) >>> 0;
  }

  /** Number of descriptors that the producer may fill. */
  get free(): number {
    return this.#mask + 1 - this.filled;
  }

  /** Returns the offset of a descriptor's slot. The upper half of the u64 is zero, as the memory has at most 4 GiB. */
  addr(cursor: number): number {
    return this.#words[this.#at(cursor)] as number;
  }

  /** Returns the frame's bytes (`len`). */
  length(cursor: number): number {
    return this.#words[this.#at(cursor) + 2] as number;
  }

  /** Returns the option bits. */
  options(cursor: number): number {
    return this.#words[this.#at(cursor) + 3] as number;
  }

  /** Sets the slot of a descriptor. A ring with fixed slots needs this only once. */
  setAddr(cursor: number, addr: number): void {
    const at = this.#at(cursor);
    this.#words[at] = addr;
    this.#words[at + 1] = 0;
  }

  /** Sets length and options of the frame that was written to the descriptor's slot. */
  describe(cursor: number, length: number, options: number): void {
    const at = this.#at(cursor);
    this.#words[at + 2] = length;
    this.#words[at + 3] = options;
  }

  #at(cursor: number): number {
    return this.#descriptors + ((cursor & this.#mask) >>> 0) * (DESCRIPTOR_BYTES / 4);
  }
}

/** Puts a frame into a ring that has room for it. Its slot must be large enough. */
export function putFrame(memory: Uint8Array, ring: RingView, frame: Uint8Array, options: number): void {
  const cursor = ring.producer;
  memory.set(frame, ring.addr(cursor));
  ring.describe(cursor, frame.length, options);
  ring.producer = cursor + 1;
}

/** Sizes and offsets of a card, for the addon. */
export type FrameRings = Pick<Frames, 'memory' | 'tx' | 'rx' | 'slotBytes' | 'icrcOffload'>;

/**
 * Returns the layout of both rings as `NativeFrameSocket.attach` takes it.
 * @throws RangeError if a ring is outside the memory or not aligned, or if slots are smaller than 128 bytes
 */
export function frameLayout({ memory, tx, rx, slotBytes, icrcOffload }: FrameRings): Uint32Array {
  for (const [name, ring] of Object.entries({ tx, rx })) {
    const end = ring.descriptors + (ring.mask + 1) * DESCRIPTOR_BYTES;
    const isInside = Math.max(ring.producer + 4, ring.consumer + 4, end) <= memory.length;
    const isAligned = ring.producer % 4 === 0 && ring.consumer % 4 === 0 && ring.descriptors % 8 === 0;
    if (!isInside || !isAligned || ((ring.mask + 1) & ring.mask) !== 0)
      throw outOfRange(`the ${name} ring ${JSON.stringify(ring)} is not in the memory of ${memory.length} bytes`);
  }
  if (slotBytes < 128) throw outOfRange(`slots have ${slotBytes} bytes, must have 128 or more`);
  return Uint32Array.of(...words(tx), ...words(rx), slotBytes, icrcOffload ? 1 : 0);
}

function words({ producer, consumer, descriptors, mask }: Ring): number[] {
  return [producer, consumer, descriptors, mask];
}

/**
 * Allocates a ring with its slots in the card's memory, for a link that wraps another one.
 * @throws RangeError if the card has not enough memory left
 */
export function allocateRing({ memory, slotBytes, allocate }: Frames, count: number): Ring {
  const slotStride = Math.ceil(slotBytes / CACHE_LINE) * CACHE_LINE;
  const slots = 2 * CACHE_LINE + count * DESCRIPTOR_BYTES;
  const start = allocate?.(slots + count * slotStride + 2 * CACHE_LINE) as number;
  const at = Math.ceil(start / CACHE_LINE) * CACHE_LINE;
  const ring = { producer: at, consumer: at + CACHE_LINE, descriptors: at + 2 * CACHE_LINE, mask: count - 1 };
  memory.fill(0, at, at + slots);
  const view = new RingView(memory, ring);
  const firstSlot = Math.ceil((at + slots) / CACHE_LINE) * CACHE_LINE;
  for (let i = 0; i < count; i++) view.setAddr(i, firstSlot + i * slotStride);
  return ring;
}
