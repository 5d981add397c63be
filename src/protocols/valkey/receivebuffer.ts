/**
 * The receive buffer of Valkey Over RDMA: the peer fills it once from its start to its end, and begins again when all
 * of it was read and it is told so.
 */
import type { Mr } from '../../index.js';

export class ReceiveBuffer {
  readonly #mr: Mr;
  #written = 0;
  #read = 0;

  constructor(mr: Mr) {
    this.#mr = mr;
  }

  /** Bytes that can be read. */
  get filled(): number {
    return this.#written - this.#read;
  }

  /** Bytes that the peer may still write. */
  get open(): number {
    return this.#mr.length - this.#written;
  }

  /** Whether everything was written and read. */
  get isUsedUp(): boolean {
    return this.#read === this.#mr.length;
  }

  /** The peer may begin again. */
  reset(): void {
    this.#written = 0;
    this.#read = 0;
  }

  /** The peer has written `bytes`, at most `open`. */
  add(bytes: number): void {
    this.#written += bytes;
  }

  /** Reads at most `max` bytes, which the caller owns. */
  read(max: number): Buffer {
    const data = this.#mr.copyOut(this.#read, Math.min(max, this.filled));
    this.#read += data.length;
    return data;
  }

  /** Reads the next bytes into memory, at most as many as it has room for. @returns their number */
  readInto(memory: Uint8Array): number {
    const bytes = Math.min(memory.length, this.filled);
    this.#mr.copyTo(memory.subarray(0, bytes), this.#read);
    this.#read += bytes;
    return bytes;
  }
}
