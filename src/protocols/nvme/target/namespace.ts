/** A namespace of a target: blocks in a storage, and the commands of the NVM command set. */

import { CommandError, ofStorage, Status } from '../status.js';
import { NvmOpcode, RANGE_BYTES } from '../wire.js';
import type { CommandContext } from './commandcontext.js';
import type { Storage } from './storage.js';

/** Log2 of the most bytes that one command moves, in units of 4 KiB (MDTS): 1 MiB. */
export const MAX_TRANSFER_LOG2 = 8;
const MAX_TRANSFER_BYTES = 4096 << MAX_TRANSFER_LOG2;
const ZEROES = Buffer.alloc(131_072);

export interface NamespaceInit {
  readonly nsid: number;
  readonly storage: Storage;
  /** Bytes of a block: 512 or 4096. */
  readonly blockBytes: number;
  /** 16 bytes that identify the namespace everywhere. */
  readonly uuid: Buffer;
}

export class Namespace {
  readonly nsid: number;
  readonly blockBytes: number;
  readonly uuid: Buffer;
  readonly #storage: Storage;
  /** Calls of the storage's users that have not returned. */
  #active = 0;
  #onIdle: (() => void) | undefined;
  #closed: Promise<void> | undefined;

  constructor({ nsid, storage, blockBytes, uuid }: NamespaceInit) {
    this.nsid = nsid;
    this.blockBytes = blockBytes;
    this.uuid = uuid;
    this.#storage = storage;
  }

  get blocks(): number {
    return Math.floor(this.#storage.bytes / this.blockBytes);
  }

  get isReadOnly(): boolean {
    return this.#storage.isReadOnly;
  }

  /** Resolves when everything written is durable. @throws CommandError */
  async flush(): Promise<void> {
    // what is closed is durable
    if (this.#closed === undefined) await this.#use(() => this.#flush());
  }

  /**
   * Carries out a command.
   * @param isWriteThrough whether everything written is durable before the response
   * @throws CommandError
   */
  execute(context: CommandContext, isWriteThrough: boolean): Promise<void> {
    return this.#use(() => this.#execute(context, isWriteThrough));
  }

  /** Makes the storage durable and closes it, once all commands have ended. @throws any error of the storage */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    if (this.#active > 0)
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    try {
      if (!this.isReadOnly) await this.#storage.flush();
    } finally {
      await this.#storage.close();
    }
  }

  async #use(work: () => Promise<void>): Promise<void> {
    this.#active++;
    try {
      await work();
    } finally {
      if (--this.#active === 0) this.#onIdle?.();
    }
  }

  async #execute(context: CommandContext, isWriteThrough: boolean): Promise<void> {
    const { opcode } = context.command;
    if (this.isReadOnly && WRITING.has(opcode)) throw new CommandError(Status.NAMESPACE_WRITE_PROTECTED);
    switch (opcode) {
      case NvmOpcode.READ:
        return this.#read(context);
      case NvmOpcode.WRITE:
        return this.#write(context, isWriteThrough);
      case NvmOpcode.COMPARE:
        return this.#compare(context);
      case NvmOpcode.WRITE_ZEROES:
        return this.#writeZeroes(context, isWriteThrough);
      case NvmOpcode.DATASET_MANAGEMENT:
        return this.#manage(context);
      case NvmOpcode.FLUSH:
        context.expectNoData();
        return this.#flush();
      default:
        throw new CommandError(Status.INVALID_OPCODE);
    }
  }

  async #read(context: CommandContext): Promise<void> {
    const { position, bytes } = this.#range(context, MAX_TRANSFER_BYTES);
    if (context.command.isForced && !this.isReadOnly) await this.#flush();
    await context.send(bytes, (part, offset) => this.#load(part, position + offset));
  }

  async #write(context: CommandContext, isWriteThrough: boolean): Promise<void> {
    const { position, bytes } = this.#range(context, MAX_TRANSFER_BYTES);
    await context.receive(bytes, (part, offset) => this.#store(part, position + offset));
    if (isWriteThrough || context.command.isForced) await this.#flush();
  }

  async #compare(context: CommandContext): Promise<void> {
    const { position, bytes } = this.#range(context, MAX_TRANSFER_BYTES);
    let isEqual = true;
    await context.receive(bytes, async (part, offset) => {
      const stored = Buffer.alloc(part.length);
      await this.#load(stored, position + offset);
      isEqual &&= stored.equals(part);
    });
    if (!isEqual) throw new CommandError(Status.COMPARE_FAILURE);
  }

  async #writeZeroes(context: CommandContext, isWriteThrough: boolean): Promise<void> {
    context.expectNoData();
    const { position, bytes } = this.#range(context, Number.POSITIVE_INFINITY);
    for (let done = 0; done < bytes; done += ZEROES.length)
      await this.#store(ZEROES.subarray(0, Math.min(ZEROES.length, bytes - done)), position + done);
    if (isWriteThrough || context.command.isForced) await this.#flush();
  }

  /** Checks the ranges. The blocks are kept: what a host may do without need not go. */
  async #manage(context: CommandContext): Promise<void> {
    const { ranges: count, isDeallocation } = context.command.dataset;
    const ranges = await context.fetch(count * RANGE_BYTES);
    if (!isDeallocation) return;
    for (let at = 0; at < ranges.length; at += RANGE_BYTES)
      this.#expectBlocks(ranges.readBigUInt64LE(at + 8), ranges.readUInt32LE(at + 4));
  }

  /** The bytes that a command is about. @throws CommandError */
  #range({ command }: CommandContext, most: number): { position: number; bytes: number } {
    const { firstBlock, blockCount } = command;
    this.#expectBlocks(firstBlock, blockCount);
    const bytes = blockCount * this.blockBytes;
    if (bytes > most) throw new CommandError(Status.INVALID_FIELD);
    return { position: Number(firstBlock) * this.blockBytes, bytes };
  }

  #expectBlocks(first: bigint, count: number): void {
    if (first + BigInt(count) > BigInt(this.blocks)) throw new CommandError(Status.LBA_OUT_OF_RANGE);
  }

  #flush(): Promise<void> {
    return ofStorage(this.#storage.flush(), Status.WRITE_FAULT);
  }

  #load(into: Buffer, position: number): Promise<void> {
    return ofStorage(this.#storage.read(into, position), Status.UNRECOVERED_READ_ERROR);
  }

  #store(from: Buffer, position: number): Promise<void> {
    return ofStorage(this.#storage.write(from, position), Status.WRITE_FAULT);
  }
}

const WRITING: ReadonlySet<number> = new Set([NvmOpcode.WRITE, NvmOpcode.WRITE_ZEROES, NvmOpcode.DATASET_MANAGEMENT]);
