/**
 * Larger buffers for connections that move much data. A connection begins with a small buffer, as most connections of a
 * server need no more.
 */

import { performance } from '../../base/timers.js';
import type { Mr } from '../../verbs/objects/mr.js';
import type { Pd } from '../../verbs/objects/pd.js';

/** A buffer grows when the connection uses its bytes `BUSY_TIMES` times within `BUSY_MS` milliseconds. */
const BUSY_TIMES = 8;
const BUSY_MS = 1000;
/** Share of the device's memory that a larger buffer leaves free. */
const LEFT_FREE = 1 / 2;

/** Size of a buffer of a transport. */
export interface BufferSize {
  readonly bytes: number;
  /** Bytes that it may have when the connection moves much data. */
  readonly maxBytes: number;
}

export class GrowableBuffer {
  readonly #pd: Pd;
  readonly #mr: Mr;
  readonly #size: BufferSize;
  readonly #onGrown: (mr: Mr) => void;
  /** Settles with the larger buffer, or without one. */
  #growing: Promise<Mr | undefined> | undefined;
  #isClosed = false;
  /** Bytes used since this time in ms. */
  #used = 0;
  #since = performance.now();

  /**
   * @param pd domain of both regions @param mr region of the buffer, which stays registered @param onGrown takes the
   * region of the larger one
   */
  constructor(pd: Pd, mr: Mr, size: BufferSize, onGrown: (mr: Mr) => void) {
    this.#pd = pd;
    this.#mr = mr;
    this.#size = size;
    this.#onGrown = onGrown;
  }

  /** Counts bytes that the connection has used, and grows the buffer when they are many. */
  used(bytes: number): void {
    this.#used += bytes;
    if (this.#used < BUSY_TIMES * this.#size.bytes) return;
    const now = performance.now();
    if (now - this.#since < BUSY_MS) this.grow();
    this.#used = 0;
    this.#since = now;
  }

  /** Grows the buffer, once, if it may and the device has the memory. */
  grow(): void {
    const { bytes, maxBytes } = this.#size;
    if (maxBytes <= bytes || this.#isClosed || this.#growing) return;
    this.#growing = this.#register(maxBytes);
    void this.#growing.then((mr) => {
      if (mr && !this.#isClosed) this.#onGrown(mr);
    });
  }

  /** Frees the larger buffer. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await (await this.#growing)?.close();
  }

  /** @returns the region; undefined when the device has not the memory, or is closed */
  async #register(bytes: number): Promise<Mr | undefined> {
    try {
      const { memoryBytes, memoryAvailable } = this.#pd.device.query();
      if (memoryAvailable - bytes < LEFT_FREE * memoryBytes) return undefined;
      return await this.#pd.regMr(bytes, { access: this.#mr.access });
    } catch {
      return undefined;
    }
  }
}
