/**
 * The memory that a peer is permitted to write, piece after piece. A connection begins with two small pieces, which it
 * keeps. While the peer fills pieces quickly, the next ones are larger, from the device's memory; they are freed when
 * they are read, and after a pause the peer gets small ones again. A piece that was announced cannot be taken back: a
 * connection that has moved much data holds its last pieces until the peer has filled them.
 */
import { performance } from '../../base/timers.js';
import { Mr } from '../../index.js';
import type { BufferSize } from '../../sockets/protocol.js';

/** The next piece is `GROWTH` times as large as one that was filled within `QUICK_MS`; small after `PAUSE_MS`. */
const GROWTH = 4;
const QUICK_MS = 100;
const PAUSE_MS = 10_000;
/** Bytes of all pieces. They rise when the program reads `BUSY_TIMES` times as much within `BUSY_MS`, and fall else. */
const USUAL_BYTES = 2 ** 18;
const BUSY_TIMES = 8;
const BUSY_MS = 1000;
/** Share of the device's memory that larger pieces leave free. */
const LEFT_FREE = 1 / 2;

/** A part of a region. */
export interface Piece {
  readonly mr: Mr;
  /** Its offset in the region. */
  readonly offset: number;
  readonly bytes: number;
}

export class GrantedMemory {
  readonly #base: Mr;
  readonly #size: BufferSize;
  /** Those of the first two pieces that are not in use. */
  readonly #small: Piece[];
  /** A larger piece that was read, for the next one. */
  #spare: Piece | undefined;
  readonly #large = new Set<Mr>();
  /** Bytes of the next piece, of those in use, and of all at most. */
  #nextBytes: number;
  #heldBytes = 0;
  #maxBytes: number;
  #filledAt = performance.now();
  /** Bytes that were read since this time in ms. */
  #readBytes = 0;
  #readSince = this.#filledAt;

  /**
   * @param base region of the connection, whose bytes from `start` to the end are the first two pieces
   * @param size bytes of these, and bytes of all pieces at most
   */
  constructor(base: Mr, start: number, size: BufferSize) {
    this.#base = base;
    this.#size = size;
    this.#maxBytes = this.#usualBytes;
    this.#nextBytes = this.#smallBytes;
    this.#small = [1, 0].map((n) => ({ mr: base, offset: start + n * this.#smallBytes, bytes: this.#smallBytes }));
  }

  /** Takes memory that the peer may write. @returns undefined when there is none until some is read */
  take(): Piece | undefined {
    const piece = this.#takeLarge() ?? this.#small.pop();
    if (piece !== undefined) this.#heldBytes += piece.bytes;
    return piece;
  }

  /** The peer has filled a piece. */
  filled(): void {
    const now = performance.now();
    const elapsed = now - this.#filledAt;
    this.#filledAt = now;
    if (elapsed < QUICK_MS) this.#nextBytes = 2 ** Math.ceil(Math.log2(GROWTH * this.#nextBytes));
    else if (elapsed > PAUSE_MS) this.#nextBytes = this.#smallBytes;
    this.#nextBytes = Math.max(this.#smallBytes, Math.min(this.#nextBytes, this.#maxBytes / 2));
  }

  /** The program has read bytes. */
  read(bytes: number): void {
    this.#readBytes += bytes;
    if (this.#readBytes < BUSY_TIMES * this.#usualBytes) return;
    const now = performance.now();
    this.#maxBytes = now - this.#readSince < BUSY_MS ? this.#size.maxBytes : this.#usualBytes;
    this.#readBytes = 0;
    this.#readSince = now;
  }

  /** A piece was read. @param isNext whether another one is taken next */
  release(piece: Piece, isNext: boolean): void {
    this.#heldBytes -= piece.bytes;
    if (piece.mr === this.#base) this.#small.push(piece);
    else if (isNext && this.#spare === undefined && piece.bytes === this.#nextBytes) this.#spare = piece;
    else this.#free(piece);
  }

  /** Frees all larger pieces. The queue pair is closed before. */
  async close(): Promise<void> {
    await Promise.all([...this.#large].map((mr) => mr.close()));
  }

  get #smallBytes(): number {
    return this.#size.bytes / 2;
  }

  /** Bytes of all pieces while the program does not read much. */
  get #usualBytes(): number {
    return Math.max(this.#size.bytes, Math.min(this.#size.maxBytes, USUAL_BYTES));
  }

  #takeLarge(): Piece | undefined {
    const spare = this.#spare;
    this.#spare = undefined;
    if (spare?.bytes === this.#nextBytes) return spare;
    if (spare !== undefined) this.#free(spare);
    if (this.#nextBytes <= this.#smallBytes || this.#heldBytes + this.#nextBytes > this.#maxBytes) return undefined;
    return this.#register(this.#nextBytes);
  }

  /** @returns undefined when the device has not the memory, or is closed */
  #register(bytes: number): Piece | undefined {
    const { pd, access } = this.#base;
    try {
      const { memoryBytes, memoryAvailable } = pd.device.query();
      if (memoryAvailable - bytes < LEFT_FREE * memoryBytes) return undefined;
      const mr = new Mr(pd, pd.handle, pd.device.memory, bytes, { access });
      this.#large.add(mr);
      return { mr, offset: 0, bytes };
    } catch {
      return undefined;
    }
  }

  #free({ mr }: Piece): void {
    this.#large.delete(mr);
    // it fails only with its device
    void mr.close().catch(() => {});
  }
}
