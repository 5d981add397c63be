/**
 * The receive direction of the xdp link. The kernel writes a frame into a chunk of the card's memory. The receiver
 * makes the card's descriptor point at the chunk, and returns the chunk to the kernel when the card has passed it. Only
 * a frame that needs several chunks is copied, into the card's own slot.
 */
import type { NativeRingIcrc } from '../../native.js';
import { RingView } from '../ring.js';
import type { XdpPlan } from './mover.js';
import type { ConsumerRing, ProducerRing } from './rings.js';
import { COUNT, type XdpShared } from './shared.js';

/** Bytes of a chunk: the largest size that the kernel supports. */
export const CHUNK_BYTES = 4096;
/** Bytes of a frame in a chunk: the kernel reserves 256 bytes in front of it. */
export const CHUNK_FRAME_BYTES = CHUNK_BYTES - 256;
/** Frames that one call moves at most, so that a turn stays short. */
const BATCH = 64;
/** Bytes of the shortest frame with a share of the link: of IPv4, with BTH, ICRC and a share of 256 bytes. */
const SHORTEST_FOLDED = 14 + 20 + 8 + 12 + 4 + 256;
/** Marks a descriptor that points at its own slot. */
const NO_CHUNK = -1;

/** The rings of a queue for the receive direction. */
export interface RxQueue {
  readonly rx: ConsumerRing;
  readonly fill: ProducerRing;
}

/** Moves received frames from the rings of all queues into the card's ring. */
export class XdpReceiver {
  readonly #counts: Float64Array;
  readonly #umem: number;
  readonly #firstChunk: number;
  readonly #chunksPerQueue: number;
  readonly #memory: Uint8Array;
  readonly #ring: RingView;
  readonly #mask: number;
  readonly #slotBytes: number;
  /** The card's own slot of each descriptor. */
  readonly #slots: Float64Array;
  /** The chunk that each descriptor points at instead of its slot, or NO_CHUNK. */
  readonly #chunks: Int32Array;
  /** Cursor of the oldest descriptor whose chunk the kernel has not got back. */
  #reclaimed: number;

  constructor(
    memory: Uint8Array,
    { frames: { rx, slotBytes }, umem, firstChunk, chunksPerQueue }: XdpPlan,
    readonly queues: readonly RxQueue[],
    shared: XdpShared,
    /** Folds the ICRC of frames; undefined: the card computes it. */
    readonly icrc?: NativeRingIcrc,
  ) {
    this.#counts = shared.counts;
    this.#umem = umem;
    this.#firstChunk = firstChunk;
    this.#chunksPerQueue = chunksPerQueue;
    this.#memory = memory;
    this.#ring = new RingView(memory, rx);
    this.#mask = rx.mask;
    this.#slotBytes = slotBytes;
    this.#slots = Float64Array.from({ length: rx.mask + 1 }, (_, n) => this.#ring.addr(n));
    this.#chunks = new Int32Array(rx.mask + 1).fill(NO_CHUNK);
    this.#reclaimed = this.#ring.consumer;
  }

  /** Moves frames into the card's ring. @returns their number */
  receive(): number {
    this.#reclaim();
    const first = this.#ring.producer;
    let moved = 0;
    for (const { rx } of this.queues) {
      if (moved >= BATCH) break;
      moved += this.#drain(rx, BATCH - moved);
    }
    // Chunks of frames in several chunks, which were copied or dropped.
    if (moved > 0) this.#publish();
    this.#foldIcrcs(first);
    return moved;
  }

  /** Folds the ICRC of the frames from a cursor on, if any of them is long enough. The card takes them after that. */
  #foldIcrcs(first: number): void {
    if (this.icrc === undefined) return;
    const ring = this.#ring;
    for (let n = first, end = ring.producer; n !== end; n = (n + 1) >>> 0)
      if (ring.length(n) >= SHORTEST_FOLDED) {
        this.icrc.fold(first);
        return;
      }
  }

  /**
   * Copies a frame from the card's memory into the card's ring, as if it had arrived: for frames to its own address.
   * @param options receive options of the descriptor
   */
  deliverCopy(from: number, length: number, options = 0): void {
    this.#reclaim();
    const ring = this.#ring;
    if (ring.free === 0 || length > this.#slotBytes) {
      this.#count(COUNT.rx_dropped, 1);
      return;
    }
    const slot = this.#slots[ring.producer & this.#mask] as number;
    this.#memory.copyWithin(slot, from, from + length);
    this.#deliver(slot, length, NO_CHUNK, options);
  }

  #drain(rx: ConsumerRing, limit: number): number {
    const filled = rx.filled;
    const room = Math.min(limit, this.#ring.free);
    let moved = 0;
    let taken = 0;
    while (taken < filled && moved < room) {
      if (rx.continues(taken)) {
        const pieces = countPieces(rx, taken, filled);
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

  /** Copies the chunks of a frame into one slot. */
  #assemble(rx: ConsumerRing, first: number, pieces: number): void {
    const slot = this.#slots[this.#ring.producer & this.#mask] as number;
    let length = 0;
    for (let n = first; n < first + pieces; n++) {
      const addr = rx.addr(n);
      const bytes = rx.length(n);
      const from = this.#umem + addr;
      if (length + bytes <= this.#slotBytes) this.#memory.copyWithin(slot + length, from, from + bytes);
      length += bytes;
      this.#recycle(addr);
    }
    if (length <= this.#slotBytes) this.#deliver(slot, length, NO_CHUNK);
    else this.#count(COUNT.rx_truncated, 1);
  }

  #deliver(addr: number, length: number, chunk: number, options = 0): void {
    const ring = this.#ring;
    const at = ring.producer;
    ring.setAddr(at, addr);
    ring.describe(at, length, options);
    this.#chunks[at & this.#mask] = chunk;
    ring.producer = at + 1;
    this.#count(COUNT.rx_frames, 1);
    this.#count(COUNT.rx_bytes, length);
  }

  /** Gives chunks back to the kernel when the card has passed them. */
  #reclaim(): void {
    const end = this.#ring.consumer;
    if (this.#reclaimed === end) return;
    for (let n = this.#reclaimed; n !== end; n = (n + 1) >>> 0) {
      const chunk = this.#chunks[n & this.#mask] as number;
      if (chunk === NO_CHUNK) continue;
      this.#chunks[n & this.#mask] = NO_CHUNK;
      this.#recycle(chunk);
    }
    this.#reclaimed = end;
    this.#publish();
  }

  /** Puts a chunk into the fill ring of its queue. @param addr any offset inside the chunk */
  #recycle(addr: number): void {
    const chunk = Math.floor((addr - this.#firstChunk) / CHUNK_BYTES);
    const queue = this.queues[Math.floor(chunk / this.#chunksPerQueue)] as RxQueue;
    queue.fill.push(this.#firstChunk + chunk * CHUNK_BYTES);
  }

  #count(counter: number, by: number): void {
    this.#counts[counter] = (this.#counts[counter] as number) + by;
  }

  #publish(): void {
    for (const { fill } of this.queues) fill.publish();
  }
}

/** Returns the number of entries of the frame that starts at entry n; 0 if its last entry has not arrived yet. */
function countPieces(rx: ConsumerRing, n: number, filled: number): number {
  for (let last = n; last < filled; last++) if (!rx.continues(last)) return last - n + 1;
  return 0;
}
