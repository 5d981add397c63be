/** Memory of the card through which data goes between its owner and the peer. It is bounded: commands wait for it. */
import type { AccessFlags, Mr, Pd, Sge } from '../../index.js';

/** A buffer, until `give`. */
export interface TransferBuffer {
  readonly bytes: Buffer;
  readonly sge: Sge;
  /** Address and key for the peer. */
  readonly address: bigint;
  readonly rkey: number;
  give(): void;
}

interface ShelfSize {
  readonly bytes: number;
  readonly count: number;
}

/** Buffers of two sizes, so that short commands do not wait for long ones. */
const [SMALL_BYTES, LARGE_BYTES] = [4096, 131_072] as const;

/** Bytes that one buffer holds at most. */
export const MAX_BUFFER_BYTES = LARGE_BYTES;

export interface BufferCounts {
  readonly small: number;
  readonly large: number;
  /** What the peer may do with the buffers. Default: nothing. */
  readonly access?: AccessFlags;
}

/** What is still to be done with a buffer. */
export interface Rest {
  readonly done: Promise<void>;
}

export class TransferBuffers {
  readonly #mr: Mr;
  readonly #small: Shelf;
  readonly #large: Shelf;

  private constructor(mr: Mr, small: number, large: number) {
    this.#mr = mr;
    this.#small = new Shelf(mr, 0, { bytes: SMALL_BYTES, count: small });
    this.#large = new Shelf(mr, SMALL_BYTES * small, { bytes: LARGE_BYTES, count: large });
  }

  /** @throws VerbsError ENOMEM */
  static async open(pd: Pd, { small, large, access }: BufferCounts): Promise<TransferBuffers> {
    const mr = await pd.regMr(SMALL_BYTES * small + LARGE_BYTES * large, access ? { access } : {});
    return new TransferBuffers(mr, small, large);
  }

  /** Uses a buffer of `bytes` bytes, and gives it back afterwards. */
  async use<T>(bytes: number, use: (buffer: TransferBuffer) => Promise<T>): Promise<T> {
    const buffer = await this.take(bytes);
    try {
      return await use(buffer);
    } finally {
      buffer.give();
    }
  }

  /** Waits for a buffer of `bytes` bytes. Buffers are given out in the order of the calls. */
  take(bytes: number): Promise<TransferBuffer> {
    return (bytes <= SMALL_BYTES ? this.#small : this.#large).take(bytes);
  }

  /**
   * Takes a buffer for each part of a transfer, and gives it back when `each` has ended and what it left behind is
   * done. All parts have ended when it returns, also when one of them throws.
   * @param each several run at once. @returns what is still to be done before the buffer can be given back
   * @throws what `each` throws first; no further parts begin then
   */
  async inParts(
    bytes: number,
    each: (buffer: TransferBuffer, offset: number) => Promise<Rest | undefined>,
  ): Promise<void> {
    const parts: Promise<void>[] = [];
    const errors: unknown[] = [];
    const carryOut = async (buffer: TransferBuffer, offset: number) => {
      let rest: Rest | undefined;
      try {
        rest = await each(buffer, offset);
      } catch (error) {
        errors.push(error);
      }
      if (rest === undefined) buffer.give();
      else rest.done.then(buffer.give, buffer.give);
    };
    for (let offset = 0; offset < bytes && errors.length === 0; offset += MAX_BUFFER_BYTES) {
      const buffer = await this.take(Math.min(bytes - offset, MAX_BUFFER_BYTES));
      parts.push(carryOut(buffer, offset));
    }
    await Promise.all(parts);
    if (errors.length > 0) throw errors[0];
  }

  /** All buffers must have been given back, or the queue pairs that use them are closed. */
  close(): Promise<void> {
    return this.#mr.close();
  }
}

/** Buffers of one size. */
class Shelf {
  readonly #mr: Mr;
  readonly #free: number[];
  readonly #waiting: ((offset: number) => void)[] = [];

  constructor(mr: Mr, start: number, { bytes, count }: ShelfSize) {
    this.#mr = mr;
    this.#free = Array.from({ length: count }, (_, i) => start + i * bytes);
  }

  async take(bytes: number): Promise<TransferBuffer> {
    const offset = this.#free.pop() ?? (await new Promise<number>((resolve) => this.#waiting.push(resolve)));
    const mr = this.#mr;
    return {
      bytes: mr.buffer.subarray(offset, offset + bytes),
      sge: mr.slice(offset, bytes),
      address: BigInt(mr.iova) + BigInt(offset),
      rkey: mr.rkey,
      give: () => this.#give(offset),
    };
  }

  #give(offset: number): void {
    const next = this.#waiting.shift();
    if (next) next(offset);
    else this.#free.push(offset);
  }
}
