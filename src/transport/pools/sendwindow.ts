/**
 * The bytes of a stream that a connection has sent and the peer has not acknowledged. Each message is a copy in memory
 * of the device's pool until then, so that a connection with nothing in flight has none.
 */

import { VerbsError } from '../../errors.js';
import { copyInto } from '../../verbs/objects/copy.js';
import type { Sge } from '../../verbs/work/wr.js';
import type { SendBuffer, SendPool } from './sendpool.js';

/** Bytes of a message when there is no memory for a longer one. */
const SHORT_BYTES = 256;

interface InFlight {
  readonly buffer: SendBuffer;
  readonly length: number;
}

export class SendWindow {
  readonly #pool: SendPool;
  readonly #maxBytes: number;
  readonly #onMemory: () => void;
  /** In order. */
  readonly #inFlight: InFlight[] = [];
  #bytes = 0;
  #heldBytes = 0;
  #hasNoMemory = false;
  #isClosed = false;

  /** @param maxBytes that may be in flight @param onMemory called when a message may be sent that found no memory */
  constructor(pool: SendPool, maxBytes: number, onMemory: () => void) {
    this.#pool = pool;
    this.#maxBytes = maxBytes;
    this.#onMemory = onMemory;
  }

  /** Bytes that may be sent now. */
  get room(): number {
    return this.#maxBytes - this.#bytes;
  }

  /**
   * Takes memory for a message of at most so many bytes; there is room for them. `fill` must follow.
   * @returns the memory, which may be shorter; undefined when there is none now: `onMemory` follows, or `release`
   * @throws VerbsError ENOMEM when the device has none although nothing else is in flight
   */
  take(bytes: number): SendBuffer | undefined {
    const buffer = this.#tryTake(bytes) ?? (bytes > SHORT_BYTES ? this.#tryTake(SHORT_BYTES) : undefined);
    // otherwise the completion of a message of this connection makes room
    this.#hasNoMemory = buffer === undefined && this.#inFlight.length === 0;
    if (this.#hasNoMemory) this.#pool.wait(this.#retry);
    return buffer;
  }

  /** Copies the bytes of a message into its memory. @returns the copy */
  fill(buffer: SendBuffer, data: Uint8Array): Sge {
    copyInto(buffer.bytes, data);
    this.#inFlight.push({ buffer, length: data.length });
    this.#bytes += data.length;
    this.#heldBytes += buffer.bytes.length;
    return buffer.sge(data.length);
  }

  /** The oldest message is acknowledged. */
  release(): void {
    const oldest = this.#inFlight.shift();
    if (oldest === undefined) return;
    this.#bytes -= oldest.length;
    this.#heldBytes -= oldest.buffer.bytes.length;
    this.#pool.release(oldest.buffer);
  }

  /** Frees the memory of all messages. The queue pair is in ERR, or closed. */
  close(): void {
    this.#isClosed = true;
    while (this.#inFlight.length > 0) this.release();
  }

  #tryTake(bytes: number): SendBuffer | undefined {
    try {
      return this.#pool.take(bytes, this.#heldBytes);
    } catch (error) {
      if (bytes > SHORT_BYTES && error instanceof VerbsError && error.code === 'ENOMEM') return undefined;
      throw error;
    }
  }

  readonly #retry = (): boolean => {
    this.#hasNoMemory = false;
    if (!this.#isClosed) this.#onMemory();
    return !this.#hasNoMemory;
  };
}
