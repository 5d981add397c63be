/** The send buffer of a connection: a ring of bytes that were copied from the program and are not acknowledged. */
import type { Mr, Sge } from '../../index.js';

export class SendRing {
  readonly #mr: Mr;
  /** Offset of the ring in the region. */
  readonly #start: number;
  /** Bytes put in, and bytes acknowledged. */
  #in = 0;
  #out = 0;
  /** Bytes of each message in flight, in order. */
  readonly #messages: number[] = [];

  /** @param mr region of the ring, which goes from `start` to the end */
  constructor(mr: Mr, start: number) {
    this.#mr = mr;
    this.#start = start;
  }

  /** Bytes that one message can have now. */
  get room(): number {
    const bytes = this.#bytes;
    const at = this.#in % bytes;
    return Math.min(bytes - (this.#in - this.#out), bytes - at);
  }

  /** Takes the memory of a message for a copy of its bytes, at most `room`. @returns the copy */
  take(data: Uint8Array): Sge {
    const at = this.#start + (this.#in % this.#bytes);
    this.#mr.copyIn(data, at);
    this.#in += data.length;
    this.#messages.push(data.length);
    return this.#mr.sge(at, data.length);
  }

  /** The oldest message is acknowledged: its memory is free. */
  release(): void {
    this.#out += this.#messages.shift() ?? 0;
  }

  get #bytes(): number {
    return this.#mr.length - this.#start;
  }
}
