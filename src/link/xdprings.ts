/**
 * The rings of an AF_XDP socket as JavaScript walks them. The kernel has them mapped into the card's memory, so taking what
 * has arrived is no call at all. Of each ring one side is the kernel: it fills the receive and the completion ring, and
 * empties the transmit and the fill ring.
 */
import { wordsOf } from './ring.js';

/** A ring in the memory; plain data. */
export interface RingPlan {
  /** Byte offsets of its producer, consumer, flags and first entry, as `NativeXskSocket.mapRing` answers them. */
  readonly places: Uint32Array;
  /** Entries, a power of two. */
  readonly count: number;
  /** DESCRIPTOR_WORDS or ADDRESS_WORDS. */
  readonly entryWords: number;
}

/** Options of an entry: the frame goes on in the next one (XDP_PKT_CONTD). */
export const CONTINUES = 1;
/** Flags of a ring: the kernel sleeps until it is woken (XDP_RING_NEED_WAKEUP). */
const NEED_WAKEUP = 1;
/** 32-bit words of `struct xdp_desc`, and of an address alone. */
export const DESCRIPTOR_WORDS = 4;
export const ADDRESS_WORDS = 2;

abstract class KernelRing {
  readonly count: number;
  readonly entryWords: number;
  protected readonly words: Uint32Array;
  readonly #producer: number;
  readonly #consumer: number;
  readonly #flags: number;
  readonly #entries: number;
  readonly #mask: number;

  constructor(memory: Uint8Array, { places, count, entryWords }: RingPlan) {
    this.count = count;
    this.entryWords = entryWords;
    this.words = wordsOf(memory);
    const [producer = 0, consumer = 0, flags = 0, entries = 0] = places;
    this.#producer = producer >>> 2;
    this.#consumer = consumer >>> 2;
    this.#flags = flags >>> 2;
    this.#entries = entries >>> 2;
    this.#mask = count - 1;
  }

  /** The kernel waits to be woken before it looks at the ring again. */
  get needsWakeup(): boolean {
    return (Atomics.load(this.words, this.#flags) & NEED_WAKEUP) !== 0;
  }

  protected get producer(): number {
    return Atomics.load(this.words, this.#producer);
  }

  protected set producer(value: number) {
    Atomics.store(this.words, this.#producer, value);
  }

  protected get consumer(): number {
    return Atomics.load(this.words, this.#consumer);
  }

  protected set consumer(value: number) {
    Atomics.store(this.words, this.#consumer, value);
  }

  /** Index of an entry's first word. */
  protected at(cursor: number): number {
    return this.#entries + (cursor & this.#mask) * this.entryWords;
  }
}

/** A ring that we fill: transmit or fill ring. */
export class OutRing extends KernelRing {
  #next = this.producer;
  #published = this.#next;

  /** Entries that may be pushed. */
  get room(): number {
    return this.count - ((this.#next - this.consumer) >>> 0);
  }

  /** Published entries that the kernel has not taken yet. */
  get waiting(): number {
    return (this.#published - this.consumer) >>> 0;
  }

  /** @param addr offset in the UMEM */
  push(addr: number, length = 0, options = 0): void {
    const { words } = this;
    const at = this.at(this.#next);
    words[at] = addr;
    words[at + 1] = 0;
    if (this.entryWords === DESCRIPTOR_WORDS) {
      words[at + 2] = length;
      words[at + 3] = options;
    }
    this.#next = (this.#next + 1) >>> 0;
  }

  /** Lets the kernel see what was pushed. */
  publish(): void {
    if (this.#published === this.#next) return;
    this.#published = this.#next;
    this.producer = this.#next;
  }
}

/** A ring that the kernel fills: receive or completion ring. Entries are counted from the oldest that is not released. */
export class InRing extends KernelRing {
  #first = this.consumer;

  /** Entries that may be looked at. */
  get filled(): number {
    return (this.producer - this.#first) >>> 0;
  }

  /** Offset in the UMEM; the upper half of the u64 is zero. */
  addr(n: number): number {
    return this.words[this.at(this.#first + n)] as number;
  }

  length(n: number): number {
    return this.words[this.at(this.#first + n) + 2] as number;
  }

  continues(n: number): boolean {
    return ((this.words[this.at(this.#first + n) + 3] as number) & CONTINUES) !== 0;
  }

  /** Gives the oldest entries back to the kernel. */
  release(count: number): void {
    if (count === 0) return;
    this.#first = (this.#first + count) >>> 0;
    this.consumer = this.#first;
  }
}
