/** Requests about the peer's memory: what fits no single place goes in several. */
import { checkInteger } from '../verbs/check.js';
import type { RemoteMemory } from '../verbs/mr.js';
import type { WaitOptions } from '../verbs/waiting.js';
import type { Sge } from '../verbs/wr.js';
import type { Place, Request } from './requests.js';

export interface ReadOptions extends WaitOptions {
  /** Where in the peer's region. Default 0. */
  readonly offset?: number;
  /** Bytes. Default: to the end of the region. */
  readonly length?: number;
}

export interface WriteOptions extends WaitOptions {
  /** Where in the peer's region. Default 0. */
  readonly offset?: number;
  /** Tells the peer: once the data is there, it gets a message without bytes that has this immediate, 32 bits. */
  readonly imm?: number;
}

export interface AtomicOptions extends WaitOptions {
  /** Where in the peer's region, a multiple of 8. Default 0. */
  readonly offset?: number;
}

/** Carries out one request. @param what for the message when the time is over */
export type Run = <T>(
  what: string,
  wait: WaitOptions,
  make: (place: Place) => Request,
  finish: (place: Place) => T,
) => Promise<T>;

type Atomic =
  | { readonly opcode: 'ATOMIC_CMP_AND_SWP'; readonly compareAdd: bigint; readonly swap: bigint }
  | { readonly opcode: 'ATOMIC_FETCH_AND_ADD'; readonly compareAdd: bigint };

export class OneSided {
  readonly #run: Run;
  readonly #partBytes: number;

  /** @param partBytes what one request carries */
  constructor(run: Run, partBytes: number) {
    this.#run = run;
    this.#partBytes = partBytes;
  }

  async write(remote: RemoteMemory, data: Uint8Array | Sge, options: WriteOptions): Promise<void> {
    const { offset = 0, imm, ...wait } = options;
    const { length } = data;
    checkInteger('offset', offset, 0, remote.length);
    checkInteger('data.length', length, 0, remote.length - offset);
    if (!(data instanceof Uint8Array)) return this.#write(remote, offset, data, imm, wait);
    await this.#inParts(length, (at, bytes) => {
      const isLast = at + bytes === length;
      return this.#write(remote, offset + at, data.subarray(at, at + bytes), isLast ? imm : undefined, wait);
    });
  }

  async read(remote: RemoteMemory, options: ReadOptions): Promise<Buffer> {
    const { offset = 0, length = remote.length - offset, ...wait } = options;
    checkInteger('offset', offset, 0, remote.length);
    checkInteger('length', length, 0, remote.length - offset);
    const data = Buffer.alloc(length);
    await this.#inParts(length, (at, bytes) =>
      this.#run(
        'no answer to the READ',
        wait,
        (place) => ({ opcode: 'RDMA_READ', sgList: place.sge(bytes), ...there(remote, offset + at) }),
        (place) => void place.bytes.copy(data, at, 0, bytes),
      ),
    );
    return data;
  }

  async atomic(remote: RemoteMemory, { offset = 0, ...wait }: AtomicOptions, what: Atomic): Promise<bigint> {
    checkInteger('offset', offset, 0, remote.length - 8);
    return this.#run(
      'no answer to the atomic',
      wait,
      (place) => ({ ...what, sgList: place.sge(8), ...there(remote, offset) }),
      (place) => place.bytes.readBigUInt64LE(0),
    );
  }

  #write(
    remote: RemoteMemory,
    offset: number,
    data: Uint8Array | Sge,
    imm: number | undefined,
    wait: WaitOptions,
  ): Promise<void> {
    const how =
      imm === undefined
        ? { opcode: 'RDMA_WRITE' as const }
        : { opcode: 'RDMA_WRITE_WITH_IMM' as const, immData: imm, solicited: true };
    return this.#run(
      'no answer to the WRITE',
      wait,
      (place) => ({ ...how, sgList: staged(place, data), ...there(remote, offset) }),
      () => {},
    );
  }

  async #inParts(length: number, part: (at: number, bytes: number) => Promise<void>): Promise<void> {
    const parts: Promise<void>[] = [];
    for (let at = 0; at === 0 || at < length; at += this.#partBytes)
      parts.push(part(at, Math.min(this.#partBytes, length - at)));
    await Promise.all(parts);
  }
}

/** The data where the card can read it. */
export function staged(place: Place, data: Uint8Array | Sge): Sge {
  if (!(data instanceof Uint8Array)) return data;
  place.bytes.set(data);
  return place.sge(data.length);
}

function there({ addr, rkey }: RemoteMemory, offset: number): { remoteAddr: number | bigint; rkey: number } {
  return { remoteAddr: typeof addr === 'bigint' ? addr + BigInt(offset) : addr + offset, rkey };
}
