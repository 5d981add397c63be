/**
 * The receive buffer of an rsocket: pieces of memory that the peer fills in order, and that the program empties in
 * order. The peer may write two pieces at a time. The buffer counts what it may still write, so that a peer which
 * writes more is found.
 */
import type { PeerMemory } from '../../transport/peermemory.js';
import type { GrantedMemory, Piece } from './grantedmemory.js';
import { TARGETS } from './wire.js';

export class ReceiveBuffer {
  /** The first piece, which the peer is permitted to write from the beginning. */
  readonly first: PeerMemory;
  readonly #memory: GrantedMemory;
  /** Pieces that the peer was permitted to write and that are not read to their end, in order. */
  readonly #pieces: Piece[] = [];
  /** The last ones of them that are not filled, and the bytes of the first of these that are. */
  #openPieces = 0;
  #written = 0;
  /** Bytes of the first piece that were read. */
  #read = 0;
  #filled = 0;
  /** Bytes of each message that was not read to its end, in order; the first one without those that were. */
  readonly #messages: number[] = [];
  /** Messages read to their end. */
  #messagesRead = 0;

  constructor(memory: GrantedMemory) {
    this.#memory = memory;
    this.first = this.grant() as PeerMemory;
  }

  /** Bytes that can be read. */
  get filled(): number {
    return this.#filled;
  }

  /** Number of messages that were not read to their end. */
  get messagesUnread(): number {
    return this.#messages.length;
  }

  /** Number of messages that were read to their end. */
  get messagesRead(): number {
    return this.#messagesRead;
  }

  /** Bytes that the next message of the peer may have: no message goes beyond the end of a piece. */
  get open(): number {
    if (this.#openPieces === 0) return 0;
    return (this.#pieces[this.#pieces.length - this.#openPieces] as Piece).bytes - this.#written;
  }

  /** Whether the peer may be permitted to write another piece. */
  get canGrant(): boolean {
    return this.#openPieces < TARGETS;
  }

  /** Permits the peer to write another piece. @returns undefined when there is no memory until some is read */
  grant(): PeerMemory | undefined {
    const piece = this.#memory.take();
    if (piece === undefined) return undefined;
    const { mr, offset, bytes } = piece;
    this.#pieces.push(piece);
    this.#openPieces++;
    return { addr: BigInt(mr.iova) + BigInt(offset), rkey: mr.rkey, length: bytes };
  }

  /** The peer has written a message. `bytes` is at most `open`. */
  add(bytes: number): void {
    const isLast = bytes === this.open;
    this.#filled += bytes;
    this.#messages.push(bytes);
    this.#written = isLast ? 0 : this.#written + bytes;
    if (!isLast) return;
    this.#openPieces--;
    this.#memory.filled();
  }

  /** Reads at most `max` bytes, which the caller owns. It may return fewer than there are. */
  read(max: number): Buffer {
    return this.#next(max, ({ mr }, at, count) => mr.copyOut(at, count));
  }

  /** Reads the next bytes into memory, at most as many as it has room for. @returns their number */
  readInto(memory: Uint8Array): number {
    return this.#next(memory.length, ({ mr }, at, count) => {
      mr.copyTo(memory.subarray(0, count), at);
      return count;
    });
  }

  /**
   * Takes bytes of the first piece.
   * @param copy copies `count` bytes at an offset of the piece's region, before the peer may write there again
   */
  #next<T>(max: number, copy: (piece: Piece, at: number, count: number) => T): T {
    const piece = this.#pieces[0] as Piece;
    const count = Math.min(max, this.#filled, piece.bytes - this.#read);
    const copied = copy(piece, piece.offset + this.#read, count);
    this.#memory.read(count);
    this.#filled -= count;
    this.#read += count;
    if (this.#read === piece.bytes) {
      this.#pieces.shift();
      this.#read = 0;
      this.#memory.release(piece, this.canGrant);
    }
    this.#retire(count);
    return copied;
  }

  /** Counts the messages that end within the bytes which were read. */
  #retire(count: number): void {
    let left = count;
    while (this.#messages.length > 0 && left >= (this.#messages[0] as number)) {
      left -= this.#messages.shift() as number;
      this.#messagesRead++;
    }
    if (left > 0) this.#messages[0] = (this.#messages[0] as number) - left;
  }
}
