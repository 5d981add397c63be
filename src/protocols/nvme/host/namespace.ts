/** A namespace of a connected controller: a disk, by bytes. */
import { Readable, Writable } from 'node:stream';
import { anything, type Checks, checkBoolean, checkOptions, wrongNumber } from '../../../base/options.js';
import { VerbsError } from '../../../index.js';
import { MAX_BUFFER_BYTES, type TransferBuffer, type TransferBuffers } from '../buffers.js';
import { FORMAT, NAMESPACE } from '../structures.js';
import { DEALLOCATE, FORCE_UNIT_ACCESS, inCapsule, inMemory, NvmOpcode, RANGE_BYTES } from '../wire.js';
import type { TargetLimits } from './limits.js';
import type { HostQueue } from './queue.js';

/** Options of `write`. */
export interface WriteOptions {
  /** Whether the data is durable when the promise resolves. Default false: `flush` makes it so. */
  readonly durable?: boolean;
}

/** A range of a namespace. */
export interface RangeOptions {
  /** First byte. Default 0. */
  readonly start?: number;
  /** Byte behind the last one. Default: the namespace's end. */
  readonly end?: number;
}

const WRITE_CHECKS: Checks<WriteOptions> = { durable: checkBoolean };
const RANGE_CHECKS: Checks<RangeOptions> = { start: anything, end: anything };

interface NamespaceInit {
  readonly nsid: number;
  /** The structure of Identify Namespace. */
  readonly identity: Buffer;
  readonly limits: TargetLimits;
  /** The controller's buffers. @throws the error that has ended the controller */
  readonly buffers: () => TransferBuffers;
  /** The queue for the next command. @throws the error that has ended the controller */
  readonly queue: () => HostQueue;
}

/**
 * A namespace, from `controller.namespaces`. Positions and lengths are bytes, and multiples of `blockBytes`. Calls may
 * overlap; no order is kept among those that are outstanding.
 */
export class NvmeNamespace {
  /** Id of the namespace. */
  readonly nsid: number;
  /** Bytes of a block. */
  readonly blockBytes: number;
  /** Size in bytes. */
  readonly bytes: number;
  /** Whether the target refuses writes. */
  readonly isReadOnly: boolean;
  readonly #buffers: () => TransferBuffers;
  readonly #queue: () => HostQueue;

  readonly #identity: Buffer;
  readonly #limits: TargetLimits;
  /** Bytes of one Read or Write at most, whole blocks. */
  readonly #transferBytes: number;
  /** The reason why its blocks cannot be used; undefined: they can. */
  readonly #obstacle: string | undefined;

  /** @internal */
  constructor({ nsid, identity, limits, buffers, queue }: NamespaceInit) {
    this.#identity = identity;
    this.#limits = limits;
    this.nsid = nsid;
    const format = formatOf(identity);
    this.blockBytes = 2 ** format.exponent;
    const blocks = Math.min(
      Number(identity.readBigUInt64LE(NAMESPACE.NSZE)),
      Math.floor(Number.MAX_SAFE_INTEGER / this.blockBytes),
    );
    this.bytes = blocks * this.blockBytes;
    this.#transferBytes = limits.transferBytes - (limits.transferBytes % this.blockBytes);
    this.#obstacle = obstacleOf(format, this.#transferBytes, limits.transferBytes);
    this.isReadOnly = ((identity[NAMESPACE.NSATTR] as number) & 1) !== 0;
    this.#buffers = buffers;
    this.#queue = queue;
  }

  /** @internal Whether this is the namespace that Identify Namespace describes so. */
  is(nsid: number, identity: Buffer): boolean {
    return this.nsid === nsid && this.#identity.equals(identity);
  }

  /**
   * Reads bytes.
   * @throws RangeError; NvmeError when the target refuses; VerbsError when the connection is lost, EOPNOTSUPP for
   * blocks with metadata, or larger than the target transfers
   */
  async read(position: number, length: number): Promise<Buffer> {
    this.#check(position, length);
    const into = Buffer.allocUnsafe(length);
    await this.#buffers().overMemory(
      into,
      ['localWrite', 'remoteWrite'],
      async (buffer, offset) => {
        await this.#queue().submit('Read', this.#transfer(NvmOpcode.READ, position + offset, buffer, 0));
        if (!buffer.isInPlace) into.set(buffer.bytes, offset);
        return undefined;
      },
      this.#transferBytes,
    );
    return into;
  }

  /** Writes bytes, which must stay as they are until the promise settles. @throws as `read` */
  async write(position: number, data: Uint8Array, options: WriteOptions = {}): Promise<void> {
    const { durable = false } = checkOptions('write', options, WRITE_CHECKS);
    this.#check(position, data.length);
    const flags = durable ? FORCE_UNIT_ACCESS : 0;
    const queue = this.#queue();
    if (data.length > 0 && data.length <= Math.min(queue.capsuleDataBytes, this.#transferBytes)) {
      const command = this.#command(NvmOpcode.WRITE, position, data.length, flags);
      await queue.submit('Write', { ...command, data: inCapsule(0n, data.length) }, { inCapsule: data });
      return;
    }
    await this.#buffers().overMemory(
      data,
      ['remoteRead'],
      async (buffer, offset) => {
        if (!buffer.isInPlace) buffer.bytes.set(data.subarray(offset, offset + buffer.bytes.length));
        await this.#queue().submit('Write', this.#transfer(NvmOpcode.WRITE, position + offset, buffer, flags));
        return undefined;
      },
      this.#transferBytes,
    );
  }

  /** Makes everything durable whose `write` has resolved. @throws as `read` */
  async flush(): Promise<void> {
    await this.#queue().submit('Flush', { opcode: NvmOpcode.FLUSH, nsid: this.nsid });
  }

  /** Makes bytes zero. A target without the command gets zeroes to write. @throws as `read` */
  async writeZeroes(position: number, length: number): Promise<void> {
    this.#check(position, length);
    const most = this.#limits.zeroesBlocks(this.blockBytes) * this.blockBytes;
    if (most === 0) {
      const zeroes = Buffer.alloc(Math.min(length, this.#transferBytes));
      for (let done = 0; done < length; done += zeroes.length)
        await this.write(position + done, zeroes.subarray(0, length - done));
      return;
    }
    for (let done = 0; done < length; done += most) {
      const command = this.#command(NvmOpcode.WRITE_ZEROES, position + done, Math.min(most, length - done), 0);
      await this.#queue().submit('Write Zeroes', command);
    }
  }

  /**
   * Deallocates a range: the target may drop its bytes. A later `read` returns any bytes. A target that cannot drop any
   * keeps them.
   * @throws as `read`
   */
  async discard(position: number, length: number): Promise<void> {
    this.#check(position, length);
    const { discard } = this.#limits;
    if (discard === undefined) return;
    const end = (position + length) / this.blockBytes;
    for (let next = position / this.blockBytes; next < end; ) {
      const ranges: Buffer[] = [];
      for (let left = Math.min(discard.blocks, end - next); left > 0 && ranges.length < discard.ranges; ) {
        const blocks = Math.min(left, discard.rangeBlocks);
        const range = Buffer.alloc(RANGE_BYTES);
        range.writeUInt32LE(blocks, 4);
        range.writeBigUInt64LE(BigInt(next), 8);
        ranges.push(range);
        next += blocks;
        left -= blocks;
      }
      await this.#manage(Buffer.concat(ranges));
    }
  }

  async #manage(ranges: Buffer): Promise<void> {
    await this.#buffers().use(ranges.length, (buffer) => {
      buffer.bytes.set(ranges);
      return this.#queue().submit('Dataset Management', {
        opcode: NvmOpcode.DATASET_MANAGEMENT,
        nsid: this.nsid,
        dwords: [ranges.length / RANGE_BYTES - 1, DEALLOCATE],
        data: keyed(buffer),
      });
    });
  }

  /** Returns a stream of a range's bytes. @throws RangeError */
  createReadStream(range: RangeOptions = {}): Readable {
    const { start = 0, end = this.bytes } = checkOptions('createReadStream', range, RANGE_CHECKS);
    this.#check(start, end - start);
    let position = start;
    const read = () => {
      const length = Math.min(MAX_BUFFER_BYTES * 4, end - position);
      position += length;
      return this.read(position - length, length);
    };
    return new Readable({
      read() {
        if (position === end) this.push(null);
        else
          read().then(
            (data) => this.push(data),
            (error) => this.destroy(error),
          );
      },
    });
  }

  /**
   * Returns a stream that writes from `start` on, at most to `end`. Its end makes everything durable. A last part that
   * is shorter than a block is filled up with zeroes.
   * @throws RangeError
   */
  createWriteStream(range: RangeOptions = {}): Writable {
    const { start = 0, end = this.bytes } = checkOptions('createWriteStream', range, RANGE_CHECKS);
    this.#check(start, end - start);
    let position = start;
    let rest: Buffer = Buffer.alloc(0);
    const write = async (data: Buffer) => {
      const all = rest.length > 0 ? Buffer.concat([rest, data]) : data;
      const whole = all.length - (all.length % this.blockBytes);
      if (position + all.length > end)
        throw wrongNumber('the data', `longer than ${end - start} bytes`, 'within the range');
      rest = Buffer.from(all.subarray(whole));
      await this.write(position, all.subarray(0, whole));
      position += whole;
    };
    const finish = async () => {
      if (rest.length > 0) await this.write(position, Buffer.concat([rest], this.blockBytes));
      await this.flush();
    };
    return new Writable({
      highWaterMark: MAX_BUFFER_BYTES * 4,
      write: (data, _, done) => void write(data).then(() => done(), done),
      final: (done) => void finish().then(() => done(), done),
    });
  }

  #transfer(opcode: NvmOpcode, position: number, buffer: TransferBuffer, flags: number) {
    return { ...this.#command(opcode, position, buffer.bytes.length, flags), data: keyed(buffer) };
  }

  #command(opcode: NvmOpcode, position: number, length: number, flags: number) {
    const first = position / this.blockBytes;
    const high = Math.floor(first / 2 ** 32);
    return { opcode, nsid: this.nsid, dwords: [first % 2 ** 32, high, length / this.blockBytes - 1 + flags] };
  }

  /** @throws RangeError; VerbsError EOPNOTSUPP */
  #check(position: number, length: number): void {
    const { blockBytes, bytes } = this;
    if (this.#obstacle !== undefined)
      throw new VerbsError('EOPNOTSUPP', `namespace ${this.nsid} cannot be used: ${this.#obstacle}`);
    for (const [name, value] of Object.entries({ position, length }))
      if (!Number.isSafeInteger(value) || value < 0 || value % blockBytes !== 0)
        throw wrongNumber(name, value, `a multiple of ${blockBytes}`);
    if (position + length > bytes) throw wrongNumber('position + length', position + length, `at most ${bytes}`);
  }
}

/** The format of the blocks (NVM command set specification, "LBA Format data structure"). */
interface Format {
  /** Log2 of the bytes of a block. */
  readonly exponent: number;
  readonly metadataBytes: number;
}

function formatOf(identity: Buffer): Format {
  const selected = identity[NAMESPACE.FLBAS] as number;
  const index = (selected & 0x0f) | ((selected & 0x60) >> 1);
  const at = NAMESPACE.LBAF + FORMAT.BYTES * index;
  return { exponent: identity[at + FORMAT.LBADS] as number, metadataBytes: identity.readUInt16LE(at + FORMAT.MS) };
}

function obstacleOf(format: Format, transferBytes: number, targetBytes: number): string | undefined {
  const { exponent, metadataBytes } = format;
  if (exponent < 9 || exponent > 31) return `its blocks have 2^${exponent} bytes, must have 2^9 or more`;
  if (metadataBytes > 0) return `its blocks have ${metadataBytes} bytes of metadata each`;
  if (transferBytes === 0) return `its blocks have ${2 ** exponent} bytes, and ${targetBytes} can be moved at once`;
  return undefined;
}

const keyed = ({ bytes, address, rkey }: TransferBuffer) => inMemory(address, rkey, bytes.length);
