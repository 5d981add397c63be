/** The send buffer of a transport: a ring of bytes that were copied from the application and are not acknowledged. */
export class SendRing {
  readonly #bytes: Buffer;
  /** Bytes put in, and bytes acknowledged, since the start. */
  #in = 0;
  #out = 0;
  /** Bytes of each message in flight, in order. */
  readonly #messages: number[] = [];

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  /** Whether all messages are acknowledged. */
  get isEmpty(): boolean {
    return this.#messages.length === 0;
  }

  /** Bytes that one message can have now. */
  get room(): number {
    const { length } = this.#bytes;
    const at = this.#in % length;
    return Math.min(length - (this.#in - this.#out), length - at);
  }

  /** Copies the bytes of a message, at most `room`. @returns the offset of the copy */
  put(data: Uint8Array): number {
    const at = this.#in % this.#bytes.length;
    this.#bytes.set(data, at);
    this.#in += data.length;
    this.#messages.push(data.length);
    return at;
  }

  /** The oldest message is acknowledged. */
  retire(): void {
    this.#out += this.#messages.shift() ?? 0;
  }
}
