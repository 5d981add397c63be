/** READ, WRITE and atomics on the peer's memory. Long data is split into several requests. */
import { anything, type Checks, checkInteger, checkOptions, checkU32 } from '../../base/options.js';
import { WAIT_CHECKS, type WaitOptions } from '../../base/waiting.js';
import type { CallMemory } from '../../transport/callmemory.js';
import { type BuildRequest, memoryFor, type Slot, type SlotInPlace, stage } from '../../transport/sendqueue.js';
import type { AccessFlags } from '../../verbs/access.js';
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

/** The requests of a connection. */
export interface Requests {
  /** Submits one request and waits for its completion: see `SendQueue.submit`. */
  submit<T>(
    timeoutText: string,
    wait: WaitOptions,
    memory: number | SlotInPlace,
    build: BuildRequest,
    finish: (slot: Slot) => T,
  ): Promise<T>;
  /** Lets requests use memory of the program in place: see `CallMemory.over`. */
  callMemory(memory: Uint8Array, access: AccessFlags): CallMemory | undefined;
}

/** Bytes of a request that uses memory of the program in place. Each is progress when it is acknowledged. */
const IN_PLACE_BYTES = 2 ** 20;

type AtomicOperation =
  | { readonly opcode: 'ATOMIC_CMP_AND_SWP'; readonly compareAdd: bigint; readonly swap: bigint }
  | { readonly opcode: 'ATOMIC_FETCH_AND_ADD'; readonly compareAdd: bigint };

export class OneSided {
  readonly #requests: Requests;
  readonly #chunkBytes: number;

  /** @param chunkBytes most bytes that one request carries in memory of ours */
  constructor(requests: Requests, chunkBytes: number) {
    this.#requests = requests;
    this.#chunkBytes = chunkBytes;
  }

  async write(remote: RemoteMemory, data: Uint8Array | Sge, options: WriteOptions): Promise<void> {
    const { offset = 0, imm, ...wait } = checkOptions('write', options, WRITE_CHECKS);
    const { length } = data;
    checkInteger('offset', offset, 0, remote.length);
    checkInteger('data.length', length, 0, remote.length - offset);
    if (!(data instanceof Uint8Array)) return this.#write(remote, offset, data, 0, imm, wait);
    await this.#inChunks(data, [], (at, bytes, part) => {
      const chunk = data.subarray(at, at + bytes);
      const isLast = at + bytes === length;
      return this.#write(remote, offset + at, chunk, part ?? memoryFor(chunk), isLast ? imm : undefined, wait);
    });
  }

  async read(remote: RemoteMemory, options: ReadOptions): Promise<Buffer> {
    const { offset = 0, length = remote.length - offset, ...wait } = checkOptions('read', options, READ_CHECKS);
    checkInteger('offset', offset, 0, remote.length);
    checkInteger('length', length, 0, remote.length - offset);
    // every byte is read before the caller gets it
    const data = Buffer.allocUnsafe(length);
    await this.#inChunks(data, ['localWrite'], (at, bytes, part) =>
      this.#requests.submit(
        'no response to the READ',
        wait,
        part ?? Math.max(bytes, 1),
        (slot, wrId) => {
          const remoteAddr = addrAt(remote, offset + at);
          const sgList = slot.sge(bytes);
          return { opcode: 'RDMA_READ', wrId, signaled: true, sgList, remoteAddr, rkey: remote.rkey };
        },
        (slot) => {
          if (part === undefined) copyInto(data, slot.bytes.subarray(0, bytes), at);
        },
      ),
    );
    return data;
  }

  async atomic(remote: RemoteMemory, options: AtomicOptions, operation: AtomicOperation): Promise<bigint> {
    const call = operation.opcode === 'ATOMIC_CMP_AND_SWP' ? 'compareSwap' : 'fetchAdd';
    const { offset = 0, ...wait } = checkOptions(call, options, ATOMIC_CHECKS);
    checkInteger('offset', offset, 0, remote.length - 8);
    return this.#requests.submit(
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
    memory: number | SlotInPlace,
    imm: number | undefined,
    wait: WaitOptions,
  ): Promise<void> {
    return this.#requests.submit(
      'no acknowledgement of the WRITE',
      wait,
      memory,
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

  /**
   * Sends a request for each chunk of data. None of them uses the data any more when the promise settles.
   * @param access rights to the data, as memory of the program
   */
  async #inChunks(
    data: Uint8Array,
    access: AccessFlags,
    sendChunk: (at: number, bytes: number, part: SlotInPlace | undefined) => Promise<void>,
  ): Promise<void> {
    const { length } = data;
    const memory = this.#requests.callMemory(data, access);
    const chunkBytes = memory ? IN_PLACE_BYTES : this.#chunkBytes;
    const chunks: Promise<void>[] = [];
    for (let at = 0; at === 0 || at < length; at += chunkBytes) {
      const bytes = Math.min(chunkBytes, length - at);
      chunks.push(sendChunk(at, bytes, memory?.part(at, bytes)));
    }
    try {
      await Promise.all(chunks);
    } finally {
      await Promise.allSettled(chunks);
      memory?.end();
    }
  }
}

/** Returns the address of a byte of the peer's region. */
function addrAt({ addr }: RemoteMemory, offset: number): number | bigint {
  return typeof addr === 'bigint' ? addr + BigInt(offset) : addr + offset;
}
