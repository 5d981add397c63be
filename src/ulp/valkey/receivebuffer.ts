/**
 * The receive buffer of Valkey Over RDMA: the peer fills it once from its start to its end, and begins again when all
 * of it was read and it is told so.
 */
export class ReceiveBuffer {
  readonly #bytes: Buffer;
  #written = 0;
  #read = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  /** Bytes that can be read. */
  get filled(): number {
    return this.#written - this.#read;
  }

  /** Bytes that the peer may still write. */
  get open(): number {
    return this.#bytes.length - this.#written;
  }

  /** Whether everything was written and read. */
  get isUsedUp(): boolean {
    return this.#read === this.#bytes.length;
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
    const end = Math.min(this.#written, this.#read + max);
    const data = Buffer.from(this.#bytes.subarray(this.#read, end));
    this.#read = end;
    return data;
  }
}
