/**
 * The receive buffer of an rsocket: a ring of two halves that the peer fills in order, and that the application empties
 * in order. It counts what the peer may still write, so that a peer which writes more is found.
 */
import type { Target } from './wire.js';

export class ReceiveRing {
  /** Bytes of one half. */
  readonly halfBytes: number;
  readonly #bytes: Buffer;
  /** Address and key of the ring. */
  readonly #memory: Omit<Target, 'length'>;
  /** Bytes that the peer has written, and that were read, since the start. */
  #written = 0;
  #read = 0;
  /** Bytes that the peer was permitted to write since the start. */
  #granted: number;
  /** Bytes of each message that was not read to its end, in order; the first one without those that were. */
  readonly #messages: number[] = [];
  /** Messages read to their end. */
  #messagesRead = 0;

  /** @param bytes memory that the peer writes @param memory its address and key for the peer */
  constructor(bytes: Buffer, memory: Omit<Target, 'length'>) {
    this.#bytes = bytes;
    this.#memory = memory;
    this.halfBytes = bytes.length / 2;
    this.#granted = this.halfBytes;
  }

  /** Bytes that can be read. */
  get filled(): number {
    return this.#written - this.#read;
  }

  /** Number of messages that were not read to their end. */
  get messagesUnread(): number {
    return this.#messages.length;
  }

  /** Number of messages that were read to their end. */
  get messagesRead(): number {
    return this.#messagesRead;
  }

  /** Bytes that the peer may still write. */
  get open(): number {
    return this.#granted - this.#written;
  }

  /** Whether a half is read that the peer was not permitted to write again. */
  get hasFreeHalf(): boolean {
    return this.#granted - this.#read <= this.halfBytes;
  }

  /** Permits the peer to write the next half. @returns the half */
  grant(): Target {
    const { addr, rkey } = this.#memory;
    const target = { addr: addr + BigInt(this.#granted % this.#bytes.length), rkey, length: this.halfBytes };
    this.#granted += this.halfBytes;
    return target;
  }

  /** The peer has written a message. `bytes` is at most `open`. */
  add(bytes: number): void {
    this.#written += bytes;
    this.#messages.push(bytes);
  }

  /** Reads at most `max` bytes, which the caller owns. It may return fewer than there are. */
  read(max: number): Buffer {
    const at = this.#read % this.#bytes.length;
    const count = Math.min(max, this.filled, this.#bytes.length - at);
    const data = Buffer.from(this.#bytes.subarray(at, at + count));
    this.#read += count;
    this.#retire(count);
    return data;
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
