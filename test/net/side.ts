/** One card of a simulated pair: its memory, divided into zones, and the model of its content. */
import type { Random } from '../kit/random.js';
import { type Piece, type Region, Rig, type RigQp } from '../kit/rig.js';

/** Bytes that nothing writes: sources of messages, and targets of the peer's READs. */
export const SOURCE = 256 << 10;
const [MW_BIND, FLUSH_GLOBAL] = [16, 256] as const;
/** Per stream: the target of the peer's WRITEs. */
export const WRITTEN = 256 << 10;
/** Per stream: words for atomics. Every stream adds to the last one. */
export const WORDS = 17;
/** Per stream: room for READ results, original values of atomics, and received messages. */
export const RING = 640 << 10;

/** Allocates ranges of a zone in order; they are released in the same order. */
export class Ring {
  #head = 0;
  #tail = 0;
  constructor(
    readonly start: number,
    readonly size: number,
  ) {}

  /** Returns the offset of `length` contiguous bytes; undefined while there is no room. `mark` releases them. */
  take(length: number): { offset: number; mark: number; before: number } | undefined {
    const before = this.#head;
    let from = before;
    const place = from % this.size;
    if (place + length > this.size) from += this.size - place;
    if (from + length - this.#tail > this.size) return undefined;
    this.#head = from + length;
    return { offset: this.start + (from % this.size), mark: this.#head, before };
  }

  /** Undoes the last `take`. */
  undo(place: { before: number }): void {
    this.#head = place.before;
  }

  giveBack(mark: number): void {
    this.#tail = mark;
  }
}

/** The zones of one queue pair in its card's arena. */
export interface Zones {
  readonly written: number;
  readonly words: number;
  readonly landing: Ring;
  readonly received: Ring;
}

export class Side {
  readonly arena: Region;
  /** The expected content of the arena once all posted requests are done. */
  readonly mirror: Buffer;
  readonly actual: Buffer;
  readonly view: DataView;
  readonly zones: Zones[] = [];
  /** Values that the shared word was seen to have. */
  readonly seen = new Set<bigint>();
  /** Offset of the word that all streams add 1 to. */
  readonly shared: number;
  readonly size: number;

  private constructor(
    readonly rig: Rig,
    streams: number,
    random: Random,
  ) {
    let at = SOURCE;
    for (let i = 0; i < streams; i++) {
      const [written, words] = [at, at + WRITTEN];
      const landing = new Ring(words + WORDS * 8, RING);
      const received = new Ring(landing.start + RING, RING);
      this.zones.push({ written, words, landing, received });
      at = received.start + RING;
    }
    this.shared = at;
    this.size = at + 8 + 64;
    this.arena = rig.region(this.size, 15 | MW_BIND | FLUSH_GLOBAL, BigInt(random.u32()) * 4096n);
    const { bytes } = this.arena;
    this.actual = Buffer.from(bytes.buffer, bytes.byteOffset, this.size);
    const words = new Uint32Array(bytes.buffer, bytes.byteOffset, this.size >>> 2);
    let x = random.u32() | 1;
    for (let i = 0; i < words.length; i++) {
      x ^= x << 13;
      x ^= x >>> 17;
      x ^= x << 5;
      words[i] = x;
    }
    this.actual.fill(0, this.shared, this.shared + 8);
    this.mirror = Buffer.from(this.actual);
    this.view = new DataView(this.mirror.buffer, this.mirror.byteOffset, this.size);
  }

  static async create(seed: number, streams: number, random: Random): Promise<Side> {
    const options = { memoryBytes: 20 << 20, rxSlots: 256, rxSlotBytes: 16384, txSlots: 64, maxMr: 1024 };
    return new Side(await Rig.create(seed, options), streams, random);
  }

  remote(offset: number): { va: bigint; rkey: number } {
    return { va: this.arena.iova + BigInt(offset), rkey: this.arena.rkey };
  }

  /** Cuts the range at random places into up to `most` SGEs, some of them empty. */
  pieces(random: Random, offset: number, length: number, most: number): Piece[] {
    const count = length === 0 && random.chance(0.5) ? 0 : random.between(1, most + 1);
    const cuts = Array.from({ length: Math.max(0, count - 1) }, () => random.below(length + 1)).sort((a, b) => a - b);
    const ends = count === 0 ? [] : [...cuts, length];
    let from = 0;
    return ends.map((end) => {
      const piece = this.arena.piece(offset + from, end - from);
      from = end;
      return piece;
    });
  }

  /** First byte in which memory and model differ, or -1. */
  difference(from = 0, to = this.size): number {
    if (this.actual.compare(this.mirror, from, to, from, to) === 0) return -1;
    let at = from;
    while (this.actual[at] === this.mirror[at]) at++;
    return at;
  }

  /** Copies the memory to the model: for ranges that the rules leave undefined. */
  accept(offset: number, length: number): void {
    this.actual.copy(this.mirror, offset, offset, offset + length);
  }
}

export type { RigQp };
