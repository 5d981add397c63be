/**
 * Access to the rings of an AF_XDP socket. They are mapped into the card's memory, so reading them needs no system
 * call. The kernel is one side of each ring: it fills the receive ring and the completion ring, and empties the
 * transmit ring and the fill ring. The names are those of libxdp (`xsk_ring_prod`, `xsk_ring_cons`).
 */
import { wordsOf } from '../ring.js';

/** A ring in the card's memory. Plain data. */
export interface RingPlan {
  /** Byte offsets of its producer, consumer, flags and first entry, as `NativeXskSocket.mapRing` returns them. */
  readonly offsets: Uint32Array;
  /** Number of entries, a power of two. */
  readonly count: number;
  /** DESCRIPTOR_WORDS or ADDRESS_WORDS. */
  readonly entryWords: number;
}

/** Option of an entry: the frame continues in the next entry (XDP_PKT_CONTD). */
export const CONTINUES = 1;
/** Flag of a ring: the kernel processes it only after a system call (XDP_RING_NEED_WAKEUP). */
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

  constructor(memory: Uint8Array, { offsets, count, entryWords }: RingPlan) {
    this.count = count;
    this.entryWords = entryWords;
    this.words = wordsOf(memory);
    const [producer = 0, consumer = 0, flags = 0, entries = 0] = offsets;
    this.#producer = producer >>> 2;
    this.#consumer = consumer >>> 2;
    this.#flags = flags >>> 2;
    this.#entries = entries >>> 2;
    this.#mask = count - 1;
  }

  /** Whether the kernel needs a system call to process the ring. */
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

/** A ring that this process fills: transmit or fill ring. */
export class ProducerRing extends KernelRing {
  #next = this.producer;
  #published = this.#next;

  /** Number of entries that may be pushed. */
  get free(): number {
    return this.count - ((this.#next - this.consumer) >>> 0);
  }

  /** Number of published entries that the kernel has not consumed yet. */
  get pending(): number {
    return (this.#published - this.consumer) >>> 0;
  }

  /** Adds an entry. The kernel sees it after `publish`. @param addr offset in the UMEM */
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

  /** Makes the pushed entries visible to the kernel. */
  publish(): void {
    if (this.#published === this.#next) return;
    this.#published = this.#next;
    this.producer = this.#next;
  }
}

/** A ring that the kernel fills: receive or completion ring. Entry 0 is the oldest that is not released. */
export class ConsumerRing extends KernelRing {
  #first = this.consumer;

  /** Number of entries that can be read. */
  get filled(): number {
    return (this.producer - this.#first) >>> 0;
  }

  /** Returns the entry's offset in the UMEM. The upper half of the u64 is zero. */
  addr(n: number): number {
    return this.words[this.at(this.#first + n)] as number;
  }

  /** Returns the entry's bytes. */
  length(n: number): number {
    return this.words[this.at(this.#first + n) + 2] as number;
  }

  /** Returns whether the frame continues in the next entry. */
  continues(n: number): boolean {
    return ((this.words[this.at(this.#first + n) + 3] as number) & CONTINUES) !== 0;
  }

  /** Returns the oldest entries to the kernel. */
  release(count: number): void {
    if (count === 0) return;
    this.#first = (this.#first + count) >>> 0;
    this.consumer = this.#first;
  }
}
