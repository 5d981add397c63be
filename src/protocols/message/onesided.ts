/** READ, WRITE and atomics on the peer's memory. Data longer than one slot is split into several requests. */
import { anything, type Checks, checkInteger, checkOptions, checkU32 } from '../../base/options.js';
import { WAIT_CHECKS, type WaitOptions } from '../../base/waiting.js';
import { type BuildRequest, memoryFor, type Slot, stage } from '../../transport/sendqueue.js';
import { copyInto } from '../../verbs/objects/copy.js';
import type { RemoteMemory } from '../../verbs/objects/mr.js';
import type { Sge } from '../../verbs/work/wr.js';

/** Options of `connection.read`. */
export interface ReadOptions extends WaitOptions {
  /** Byte offset into the peer's region. Default 0. */
  readonly offset?: number;
  /** Number of bytes. Default: up to the end of the region. */
  readonly length?: number;
}

/** Options of `connection.write`. */
export interface WriteOptions extends WaitOptions {
  /** Byte offset into the peer's region. Default 0. */
  readonly offset?: number;
  /**
   * Immediate data, 32 bits, sent with the last request (RDMA_WRITE_WITH_IMM). The peer receives an empty message with
   * it once the data is in place. Default: none.
   */
  readonly imm?: number;
}

/** Options of `connection.compareSwap` and `connection.fetchAdd`. */
export interface AtomicOptions extends WaitOptions {
  /** Byte offset into the peer's region, a multiple of 8. Default 0. */
  readonly offset?: number;
}

/** Offset and length are checked against the peer's region. */
const ATOMIC_CHECKS: Checks<AtomicOptions> = { ...WAIT_CHECKS, offset: anything };
const READ_CHECKS: Checks<ReadOptions> = { ...ATOMIC_CHECKS, length: anything };
const WRITE_CHECKS: Checks<WriteOptions> = { ...ATOMIC_CHECKS, imm: checkU32 };

/** Submits one request and waits for its completion: see `Requests.submit`. */
export type SubmitRequest = <T>(
  timeoutText: string,
  wait: WaitOptions,
  bytes: number,
  build: BuildRequest,
  finish: (slot: Slot) => T,
) => Promise<T>;

type AtomicOperation =
  | { readonly opcode: 'ATOMIC_CMP_AND_SWP'; readonly compareAdd: bigint; readonly swap: bigint }
  | { readonly opcode: 'ATOMIC_FETCH_AND_ADD'; readonly compareAdd: bigint };

export class OneSided {
  readonly #submit: SubmitRequest;
  readonly #chunkBytes: number;

  /** @param chunkBytes most bytes that one request carries */
  constructor(submit: SubmitRequest, chunkBytes: number) {
    this.#submit = submit;
    this.#chunkBytes = chunkBytes;
  }

  async write(remote: RemoteMemory, data: Uint8Array | Sge, options: WriteOptions): Promise<void> {
    const { offset = 0, imm, ...wait } = checkOptions('write', options, WRITE_CHECKS);
    const { length } = data;
    checkInteger('offset', offset, 0, remote.length);
    checkInteger('data.length', length, 0, remote.length - offset);
    if (!(data instanceof Uint8Array)) return this.#write(remote, offset, data, imm, wait);
    await this.#inChunks(length, (at, bytes) => {
      const isLast = at + bytes === length;
      return this.#write(remote, offset + at, data.subarray(at, at + bytes), isLast ? imm : undefined, wait);
    });
  }

  async read(remote: RemoteMemory, options: ReadOptions): Promise<Buffer> {
    const { offset = 0, length = remote.length - offset, ...wait } = checkOptions('read', options, READ_CHECKS);
    checkInteger('offset', offset, 0, remote.length);
    checkInteger('length', length, 0, remote.length - offset);
    // every byte is read before the caller gets it
    const data = Buffer.allocUnsafe(length);
    await this.#inChunks(length, (at, bytes) =>
      this.#submit(
        'no response to the READ',
        wait,
        Math.max(bytes, 1),
        (slot, wrId) => {
          const remoteAddr = addrAt(remote, offset + at);
          const sgList = slot.sge(bytes);
          return { opcode: 'RDMA_READ', wrId, signaled: true, sgList, remoteAddr, rkey: remote.rkey };
        },
        (slot) => copyInto(data, slot.bytes.subarray(0, bytes), at),
      ),
    );
    return data;
  }

  async atomic(remote: RemoteMemory, options: AtomicOptions, operation: AtomicOperation): Promise<bigint> {
    const call = operation.opcode === 'ATOMIC_CMP_AND_SWP' ? 'compareSwap' : 'fetchAdd';
    const { offset = 0, ...wait } = checkOptions(call, options, ATOMIC_CHECKS);
    checkInteger('offset', offset, 0, remote.length - 8);
    return this.#submit(
      'no response to the atomic',
      wait,
      8,
      (slot, wrId) => {
        const sgList = slot.sge(8);
        const remoteAddr = addrAt(remote, offset);
        const { rkey } = remote;
        const { opcode, compareAdd } = operation;
        return opcode === 'ATOMIC_FETCH_AND_ADD'
          ? { opcode, wrId, signaled: true, sgList, remoteAddr, rkey, compareAdd }
          : { opcode, wrId, signaled: true, sgList, remoteAddr, rkey, compareAdd, swap: operation.swap };
      },
      (slot) => slot.bytes.readBigUInt64LE(0),
    );
  }

  #write(
    remote: RemoteMemory,
    offset: number,
    data: Uint8Array | Sge,
    imm: number | undefined,
    wait: WaitOptions,
  ): Promise<void> {
    return this.#submit(
      'no acknowledgement of the WRITE',
      wait,
      memoryFor(data),
      (slot, wrId) => {
        const sgList = stage(slot, data);
        const remoteAddr = addrAt(remote, offset);
        const { rkey } = remote;
        if (imm === undefined) return { opcode: 'RDMA_WRITE', wrId, signaled: true, sgList, remoteAddr, rkey };
        const opcode = 'RDMA_WRITE_WITH_IMM';
        return { opcode, wrId, signaled: true, solicited: true, sgList, remoteAddr, rkey, immData: imm };
      },
      () => {},
    );
  }

  async #inChunks(length: number, sendChunk: (at: number, bytes: number) => Promise<void>): Promise<void> {
    const chunks: Promise<void>[] = [];
    for (let at = 0; at === 0 || at < length; at += this.#chunkBytes)
      chunks.push(sendChunk(at, Math.min(this.#chunkBytes, length - at)));
    await Promise.all(chunks);
  }
}

/** Returns the address of a byte of the peer's region. */
function addrAt({ addr }: RemoteMemory, offset: number): number | bigint {
  return typeof addr === 'bigint' ? addr + BigInt(offset) : addr + offset;
}
