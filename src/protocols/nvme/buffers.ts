/**
 * Memory through which data goes between its owner and the peer: buffers in the card, which are bounded, so that
 * commands wait for them; or memory of the program, for the time of a call. The buffers of a target are those of all
 * hosts, of which each has a share.
 */
import { AsyncQueue } from '../../base/asyncqueue.js';
import { Shares } from '../../base/shares.js';
import type { AccessFlags, Mr, Pd, Sge } from '../../index.js';
import { registerForCall } from '../../transport/callmemory.js';

/** A buffer, until `release`. */
export interface TransferBuffer {
  readonly bytes: Buffer;
  readonly sge: Sge;
  /** Address and key for the peer. */
  readonly address: bigint;
  readonly rkey: number;
  /** Whether it is the memory of the program itself, from or to which nothing is copied. */
  readonly isInPlace: boolean;
  release(): void;
}

interface BufferSizes {
  readonly bytes: number;
  readonly count: number;
}

/** Buffers of two sizes, so that short commands do not wait for long ones. */
const [SMALL_BYTES, LARGE_BYTES] = [4096, 131_072] as const;

/** Parts of the program's memory that are moved at once. */
const PARTS_AT_ONCE = 32;

/** Bytes that one buffer holds at most. */
export const MAX_BUFFER_BYTES = LARGE_BYTES;

export interface BufferCounts {
  readonly small: number;
  readonly large: number;
  /** Rights of the peer to the buffers. Default: none. */
  readonly access?: AccessFlags;
  /** Whether each client has a share; otherwise one may have all. Default false. */
  readonly isShared?: boolean;
}

/** Carries out a part of a transfer. @returns the part that is still to be done before the buffer can be given back */
type EachPart<Left> = (buffer: TransferBuffer, offset: number) => Promise<Left>;

/** The outstanding use of a buffer. */
export interface Pending {
  readonly done: Promise<void>;
}

export class TransferBuffers {
  readonly #mr: Mr;
  readonly #small: FreeList;
  readonly #large: FreeList;
  readonly #client: string;

  private constructor(mr: Mr, small: FreeList, large: FreeList, client: string) {
    this.#mr = mr;
    this.#small = small;
    this.#large = large;
    this.#client = client;
  }

  /** @throws VerbsError ENOMEM */
  static async open(pd: Pd, { small, large, access, isShared = false }: BufferCounts): Promise<TransferBuffers> {
    const mr = await pd.regMr(SMALL_BYTES * small + LARGE_BYTES * large, access ? { access } : {});
    const list = (start: number, bytes: number, count: number) =>
      new FreeList(mr, start, { bytes, count }, isShared ? Shares.of(count) : undefined);
    return new TransferBuffers(mr, list(0, SMALL_BYTES, small), list(SMALL_BYTES * small, LARGE_BYTES, large), '');
  }

  /** Returns the same buffers for a client, whose share counts. */
  of(client: string): TransferBuffers {
    return new TransferBuffers(this.#mr, this.#small, this.#large, client);
  }

  /** Uses a buffer of `bytes` bytes, and gives it back afterwards. */
  async use<T>(bytes: number, use: (buffer: TransferBuffer) => Promise<T>): Promise<T> {
    const buffer = await this.take(bytes);
    try {
      return await use(buffer);
    } finally {
      buffer.release();
    }
  }

  /** Waits for a buffer of `bytes` bytes. A client gets them in the order of its calls, and clients take turns. */
  take(bytes: number): Promise<TransferBuffer> {
    return (bytes <= SMALL_BYTES ? this.#small : this.#large).take(bytes, this.#client);
  }

  /**
   * Takes a buffer for each part of a transfer, and gives it back when `each` has ended and what it left behind is
   * done. All parts have ended when it returns, also when one of them throws.
   * @param partBytes bytes of a part at most, no more than `MAX_BUFFER_BYTES`
   * @param each several run at once
   * @throws the first error of `each`; no further parts begin then
   */
  inParts(bytes: number, each: EachPart<Pending | undefined>, partBytes: number = MAX_BUFFER_BYTES): Promise<void> {
    return inParts(bytes, partBytes, (length) => this.take(length), each);
  }

  /**
   * As `inParts`, for a transfer from or to memory of the program. If that is long, each part gets its place in the
   * memory as a buffer (`isInPlace`).
   * @param access rights of the peer to the memory
   */
  async overMemory(
    memory: Uint8Array,
    access: AccessFlags,
    each: EachPart<undefined>,
    partBytes: number,
  ): Promise<void> {
    const mr = registerForCall(this.#mr.pd, memory, access);
    if (mr === undefined) return this.inParts(memory.length, each, partBytes);
    const turns = new AsyncQueue(Array.from({ length: PARTS_AT_ONCE }, (_, turn) => turn));
    const take = async (length: number, offset: number) => {
      const turn = await turns.take();
      return { ...bufferIn(mr, offset, length), isInPlace: true, release: () => turns.put(turn) };
    };
    try {
      await inParts(memory.length, partBytes, take, each);
    } finally {
      await mr.close();
    }
  }

  /** All buffers must have been given back, or the queue pairs that use them are closed. */
  close(): Promise<void> {
    return this.#mr.close();
  }
}

/** See `TransferBuffers.inParts`. @param take waits for the buffer of a part */
async function inParts(
  bytes: number,
  partBytes: number,
  take: (length: number, offset: number) => Promise<TransferBuffer>,
  each: EachPart<Pending | undefined>,
): Promise<void> {
  const parts: Promise<void>[] = [];
  const errors: unknown[] = [];
  const carryOut = async (buffer: TransferBuffer, offset: number) => {
    let pending: Pending | undefined;
    try {
      pending = await each(buffer, offset);
    } catch (error) {
      errors.push(error);
    }
    if (pending === undefined) buffer.release();
    else pending.done.then(buffer.release, buffer.release);
  };
  for (let offset = 0; offset < bytes && errors.length === 0; offset += partBytes) {
    const buffer = await take(Math.min(bytes - offset, partBytes), offset);
    parts.push(carryOut(buffer, offset));
  }
  await Promise.all(parts);
  if (errors.length > 0) throw errors[0];
}

function bufferIn(mr: Mr, offset: number, bytes: number): Omit<TransferBuffer, 'isInPlace' | 'release'> {
  return {
    bytes: mr.buffer.subarray(offset, offset + bytes),
    sge: mr.sge(offset, bytes),
    address: BigInt(mr.iova) + BigInt(offset),
    rkey: mr.rkey,
  };
}

/** Buffers of one size. */
class FreeList {
  readonly #mr: Mr;
  readonly #free: number[];
  readonly #shares: Shares | undefined;
  /** Calls that wait, by client; the client whose turn it is comes first. */
  readonly #waiting = new Map<string, ((offset: number) => void)[]>();

  constructor(mr: Mr, start: number, { bytes, count }: BufferSizes, shares: Shares | undefined) {
    this.#mr = mr;
    this.#shares = shares;
    this.#free = Array.from({ length: count }, (_, i) => start + i * bytes);
  }

  async take(bytes: number, client: string): Promise<TransferBuffer> {
    const offset = this.#waiting.has(client) ? undefined : this.#takeFree(client);
    return this.#bufferAt(offset ?? (await this.#wait(client)), bytes, client);
  }

  #bufferAt(offset: number, bytes: number, client: string): TransferBuffer {
    const release = () => this.#release(offset, client);
    return { ...bufferIn(this.#mr, offset, bytes), isInPlace: false, release };
  }

  #takeFree(client: string): number | undefined {
    if (this.#free.length === 0 || this.#shares?.take(client, 1) === false) return undefined;
    return this.#free.pop();
  }

  #wait(client: string): Promise<number> {
    const calls = this.#waiting.get(client) ?? [];
    this.#waiting.set(client, calls);
    return new Promise((resolve) => calls.push(resolve));
  }

  #release(given: number, client: string): void {
    this.#shares?.release(client, 1);
    this.#free.push(given);
    for (const [next, calls] of [...this.#waiting]) {
      const offset = this.#takeFree(next);
      if (offset === undefined) continue;
      this.#waiting.delete(next);
      calls.shift()?.(offset);
      if (calls.length > 0) this.#waiting.set(next, calls);
      if (this.#free.length === 0) return;
    }
  }
}
