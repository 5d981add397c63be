/** The send buffer of a transport: a ring of bytes that were copied from the application and are not acknowledged. */
import type { Mr } from '../../verbs/objects/mr.js';
import type { Sge } from '../../verbs/work/wr.js';

export class SendRing {
  #mr: Mr;
  /** Offset of the ring in the region. */
  #start: number;
  /** Bytes put in, and bytes acknowledged, since the ring has this memory. */
  #in = 0;
  #out = 0;
  /** Bytes of each message in flight, in order; before them are messages in memory that the ring had earlier. */
  readonly #messages: number[] = [];
  #earlierMessages = 0;

  /** @param mr region of the ring, which goes from `start` to the end */
  constructor(mr: Mr, start: number) {
    this.#mr = mr;
    this.#start = start;
  }

  /** Bytes of the ring. */
  get bytes(): number {
    return this.#mr.length - this.#start;
  }

  /** Bytes that one message can have now. */
  get room(): number {
    const { bytes } = this;
    const at = this.#in % bytes;
    return Math.min(bytes - (this.#in - this.#out), bytes - at);
  }

  /** Takes the memory of a message for a copy of its bytes, at most `room`. @returns the copy */
  take(data: Uint8Array): Sge {
    const at = this.#start + (this.#in % this.bytes);
    this.#mr.copyIn(data, at);
    this.#in += data.length;
    this.#messages.push(data.length);
    return this.#mr.sge(at, data.length);
  }

  /** The oldest message is acknowledged: its memory is free. */
  release(): void {
    if (this.#earlierMessages > 0) this.#earlierMessages--;
    else this.#out += this.#messages.shift() ?? 0;
  }

  /** Puts what follows into another region, from its start to its end. */
  moveTo(mr: Mr): void {
    this.#mr = mr;
    this.#start = 0;
    this.#in = 0;
    this.#out = 0;
    this.#earlierMessages += this.#messages.splice(0).length;
  }
}
