/**
 * The way in of the xdp link. The kernel writes a frame into a chunk of the card's memory, and the card reads it there: its
 * descriptor is made to point at the chunk, which goes back to the kernel when the card has passed it. Only a frame that
 * needed several chunks is copied, into the slot that the card has for it.
 */
import { RingView } from './ring.js';
import type { XdpPlan } from './xdpmover.js';
import type { InRing, OutRing } from './xdprings.js';
import { COUNT, type XdpShared } from './xdpshared.js';

/** Bytes of a chunk: the largest that the kernel knows. */
export const CHUNK_BYTES = 4096;
/** What of a chunk is the frame's: the kernel keeps 256 bytes in front of it. */
export const CHUNK_FRAME_BYTES = CHUNK_BYTES - 256;
/** Frames that one call moves, so that a turn stays short. */
const BATCH = 64;
/** Stands for a descriptor that points at its own slot. */
const NO_CHUNK = -1;

/** The two rings of a queue by which frames come in. */
export interface InRings {
  readonly rx: InRing;
  readonly fill: OutRing;
}

export class XdpReceiver {
  readonly #counts: Float64Array;
  readonly #umem: number;
  readonly #firstChunk: number;
  readonly #perQueue: number;
  readonly #memory: Uint8Array;
  readonly #ring: RingView;
  readonly #mask: number;
  readonly #slotBytes: number;
  /** The card's own slot of each descriptor, and the chunk that it points at instead. */
  readonly #slots: Float64Array;
  readonly #chunks: Int32Array;
  /** The oldest descriptor whose chunk has not gone back. */
  #reclaimed: number;

  constructor(
    memory: Uint8Array,
    { frames: { rx, slotBytes }, umem, firstChunk, perQueue }: XdpPlan,
    readonly queues: readonly InRings[],
    shared: XdpShared,
  ) {
    this.#counts = shared.counts;
    this.#umem = umem;
    this.#firstChunk = firstChunk;
    this.#perQueue = perQueue;
    this.#memory = memory;
    this.#ring = new RingView(memory, rx);
    this.#mask = rx.mask;
    this.#slotBytes = slotBytes;
    this.#slots = Float64Array.from({ length: rx.mask + 1 }, (_, n) => this.#ring.addr(n));
    this.#chunks = new Int32Array(rx.mask + 1).fill(NO_CHUNK);
    this.#reclaimed = this.#ring.consumer;
  }

  /** Moves what has arrived into the card's ring. @returns frames moved */
  receive(): number {
    this.#reclaim();
    let moved = 0;
    for (const { rx } of this.queues) {
      if (moved >= BATCH) break;
      moved += this.#drain(rx, BATCH - moved);
    }
    // Chunks of frames in pieces, and of those that were dropped.
    if (moved > 0) this.#publish();
    return moved;
  }

  /** Hands the card a copy of a frame that is somewhere in the memory, as if it had arrived. */
  copyIn(from: number, length: number): void {
    this.#reclaim();
    const ring = this.#ring;
    if (ring.free === 0 || length > this.#slotBytes) {
      this.#count(COUNT.rx_dropped, 1);
      return;
    }
    const slot = this.#slots[ring.producer & this.#mask] as number;
    this.#memory.copyWithin(slot, from, from + length);
    this.#deliver(slot, length, NO_CHUNK);
  }

  #drain(rx: InRing, limit: number): number {
    const filled = rx.filled;
    const room = Math.min(limit, this.#ring.free);
    let moved = 0;
    let taken = 0;
    while (taken < filled && moved < room) {
      if (rx.continues(taken)) {
        const pieces = piecesOf(rx, taken, filled);
        if (pieces === 0) break;
        this.#assemble(rx, taken, pieces);
        taken += pieces;
      } else {
        const addr = rx.addr(taken);
        this.#deliver(this.#umem + addr, rx.length(taken), addr);
        taken++;
      }
      moved++;
    }
    rx.release(taken);
    return moved;
  }

  /** Copies the pieces of a frame together. */
  #assemble(rx: InRing, first: number, pieces: number): void {
    const slot = this.#slots[this.#ring.producer & this.#mask] as number;
    let length = 0;
    for (let n = first; n < first + pieces; n++) {
      const addr = rx.addr(n);
      const bytes = rx.length(n);
      const from = this.#umem + addr;
      if (length + bytes <= this.#slotBytes) this.#memory.copyWithin(slot + length, from, from + bytes);
      length += bytes;
      this.#giveBack(addr);
    }
    if (length <= this.#slotBytes) this.#deliver(slot, length, NO_CHUNK);
    else this.#count(COUNT.rx_truncated, 1);
  }

  #deliver(addr: number, length: number, chunk: number): void {
    const ring = this.#ring;
    const at = ring.producer;
    ring.place(at, addr);
    ring.describe(at, length, 0);
    this.#chunks[at & this.#mask] = chunk;
    ring.producer = at + 1;
    this.#count(COUNT.rx_frames, 1);
    this.#count(COUNT.rx_bytes, length);
  }

  /** Gives the kernel the chunks that the card has passed. */
  #reclaim(): void {
    const end = this.#ring.consumer;
    if (this.#reclaimed === end) return;
    for (let n = this.#reclaimed; n !== end; n = (n + 1) >>> 0) {
      const chunk = this.#chunks[n & this.#mask] as number;
      if (chunk === NO_CHUNK) continue;
      this.#chunks[n & this.#mask] = NO_CHUNK;
      this.#giveBack(chunk);
    }
    this.#reclaimed = end;
    this.#publish();
  }

  /** @param addr any place in the chunk */
  #giveBack(addr: number): void {
    const chunk = Math.floor((addr - this.#firstChunk) / CHUNK_BYTES);
    const queue = this.queues[Math.floor(chunk / this.#perQueue)] as InRings;
    queue.fill.push(this.#firstChunk + chunk * CHUNK_BYTES);
  }

  #count(counter: number, by: number): void {
    this.#counts[counter] = (this.#counts[counter] as number) + by;
  }

  #publish(): void {
    for (const { fill } of this.queues) fill.publish();
  }
}

/** How many entries a frame has that begins with the n-th; 0 when its end has not come yet. */
function piecesOf(rx: InRing, n: number, filled: number): number {
  for (let last = n; last < filled; last++) if (!rx.continues(last)) return last - n + 1;
  return 0;
}
