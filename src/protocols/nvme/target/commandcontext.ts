/** A command that is being carried out, and the way of its data between the host and what carries it out. */

import { CommandError, Status } from '../status.js';
import type { Command, DataDescriptor } from '../wire.js';
import type { Queue } from './queue.js';

/** Takes or gives a part of the data. @param offset of the part, in bytes */
export type UsePart = (part: Buffer, offset: number) => Promise<void> | void;

export class CommandContext {
  readonly #queue: Queue;
  readonly #inCapsule: Buffer;
  /** The host's key that the response is to invalidate. */
  keyToInvalidate: number | undefined;

  constructor(
    queue: Queue,
    readonly command: Command,
    inCapsule: Buffer,
  ) {
    this.#queue = queue;
    this.#inCapsule = inCapsule;
  }

  /** Checks that the command comes without data. @throws CommandError */
  expectNoData(): void {
    if (this.#descriptor().length !== 0) throw new CommandError(Status.DATA_SGL_LENGTH_INVALID);
  }

  /**
   * Fetches data of the host, in parts of at most 128 KiB that may come in any order, several at once.
   * @throws CommandError when the host has described less or more; what `use` throws
   */
  receive(bytes: number, use: UsePart): Promise<void> {
    return this.#receive(this.#expect(bytes), bytes, use);
  }

  /** Fetches at least so many bytes of the host, and returns these. @throws as `receive` */
  async fetch(bytes: number): Promise<Buffer> {
    const data = Buffer.alloc(bytes);
    const descriptor = this.#descriptor();
    if (descriptor.length < bytes) throw new CommandError(Status.DATA_SGL_LENGTH_INVALID);
    await this.#receive(descriptor, bytes, (part, offset) => void data.set(part, offset));
    return data;
  }

  /**
   * Gives the host data, in parts of at most 128 KiB that `fill` fills, in any order, several at once. When it returns,
   * all of it is on its way before the response.
   * @throws CommandError when the host has described less or more room; what `fill` throws
   */
  async send(bytes: number, fill: UsePart): Promise<void> {
    const { place, address, rkey } = this.#expect(bytes);
    if (place === 'capsule') throw new CommandError(Status.INVALID_FIELD);
    await this.#queue.buffers.inParts(bytes, async (buffer, offset) => {
      await fill(buffer.bytes, offset);
      const remoteAddr = address + BigInt(offset);
      const done = this.#queue.post({ opcode: 'RDMA_WRITE', sgList: buffer.sge, remoteAddr, rkey });
      return { done };
    });
  }

  /** Gives the host data. @throws as `send` */
  give(data: Uint8Array): Promise<void> {
    return this.send(data.length, (part, offset) => void part.set(data.subarray(offset, offset + part.length)));
  }

  async #receive({ place, address, rkey }: DataDescriptor, bytes: number, use: UsePart): Promise<void> {
    if (place === 'capsule') {
      const begin = Number(address);
      if (begin + bytes > this.#inCapsule.length) throw new CommandError(Status.SGL_OFFSET_INVALID);
      await use(this.#inCapsule.subarray(begin, begin + bytes), 0);
      return;
    }
    await this.#queue.buffers.inParts(bytes, async (buffer, offset) => {
      const remoteAddr = address + BigInt(offset);
      await this.#queue.post({ opcode: 'RDMA_READ', sgList: buffer.sge, remoteAddr, rkey });
      await use(buffer.bytes, offset);
      return undefined;
    });
  }

  /** The descriptor of the data, whose key the response invalidates from now on. */
  #descriptor(): DataDescriptor {
    const descriptor = this.command.data;
    if (descriptor.invalidates) this.keyToInvalidate = descriptor.rkey;
    return descriptor;
  }

  #expect(bytes: number): DataDescriptor {
    const descriptor = this.#descriptor();
    if (descriptor.length !== bytes) throw new CommandError(Status.DATA_SGL_LENGTH_INVALID);
    return descriptor;
  }
}
