/** Memory regions: memory that the card may read and write, under keys. */

import { Errno, nameOf } from '../device/codes.js';
import type { Allocation, CardMemory } from '../device/memory.js';
import { VerbsError } from '../errors.js';
import { type AccessFlags, type AccessName, accessBits, accessNames } from './access.js';
import { checkInteger, checkU64, hex, show } from './check.js';
import type { Pd } from './pd.js';
import { Resource } from './resource.js';
import type { Sge } from './wr.js';

export interface MrOptions {
  /**
   * What the region may be used for; reading by this device is always allowed. Remote rights also need the queue pair's.
   * Default: `['localWrite']`. `remoteWrite` and `remoteAtomic` need `localWrite` too.
   */
  readonly access?: AccessFlags;
  /** Address under which the peer knows the first byte, 64 bits. Default: its address in the card's memory. */
  readonly iova?: number | bigint;
}

/** What a peer must know to READ from or WRITE to a region; plain, to be sent as JSON. */
export interface RemoteMemory {
  /** A bigint only where a number would not be exact: for an `iova` over 2^53, which JSON does not take. */
  readonly addr: number | bigint;
  readonly rkey: number;
  /** Bytes. */
  readonly length: number;
}

/**
 * A memory region. Its memory is a part of the card's (a SharedArrayBuffer): zeroed when allocated, and given back when
 * the last region over it is closed.
 *
 * **A Buffer outlives its region.** After the last region over its memory is closed, a `buffer` that the program kept
 * still shows that memory, which may belong to a later region by then. Do not use it any more.
 */
export class Mr extends Resource {
  readonly kind = 'mr';
  readonly length: number;
  /** Address of the first byte in the card's memory, as `Sge.addr` wants it. */
  readonly addr: number;
  /** Address of the first byte as the peer names it. */
  readonly iova: number | bigint;
  readonly access: readonly AccessName[];
  readonly lkey: number;
  readonly rkey: number;
  readonly #memory: CardMemory;
  readonly #allocation: Allocation;
  readonly #handle: number;
  readonly #buffer: Buffer;

  /** @internal Use `pd.regMr`. */
  constructor(pd: Pd, handle: number, memory: CardMemory, source: number | Uint8Array | Mr, options: MrOptions) {
    super([pd]);
    const access = accessBits('access', options.access ?? ['localWrite']);
    const iova = options.iova === undefined ? undefined : checkU64('iova', options.iova);
    const { exports } = memory.card;
    const bytes = typeof source === 'number' ? source : source instanceof Mr ? source.buffer : source;
    this.#memory = memory;
    this.#allocation = allocationFor(memory, bytes);
    this.addr = typeof bytes === 'number' ? this.#allocation.ptr : bytes.byteOffset;
    this.length = typeof bytes === 'number' ? bytes : bytes.length;
    this.iova = iova ?? this.addr;
    const wide = BigInt(this.iova);
    this.#handle = exports.mrReg(
      handle,
      this.addr,
      this.length,
      access,
      Number(wide >> 32n),
      Number(wide & 0xffffffffn),
    );
    if (this.#handle === 0) {
      memory.release(this.#allocation);
      const errno = exports.lastErrno();
      if (errno === Errno.ENOMEM)
        throw new VerbsError('ENOMEM', `no memory region left; the device has ${memory.card.options.maxMr}`);
      throw new VerbsError(
        'EINVAL',
        `region of ${this.length} bytes with access ${accessNames(access).join(', ') || 'none'} at iova ${wide} refused ` +
          `(${nameOf(Errno, errno)}); remoteWrite and remoteAtomic need localWrite, and iova + length must not pass 2^64`,
      );
    }
    this.access = accessNames(access);
    this.lkey = exports.mrLkey(this.#handle);
    this.rkey = exports.mrRkey(this.#handle);
    this.#buffer = Buffer.from(memory.card.memory.buffer, this.addr, this.length);
    this.opened();
  }

  get label(): string {
    return `lkey ${hex(this.lkey)}`;
  }

  /** The memory itself, shared with the card. @throws VerbsError EINVAL after close */
  get buffer(): Buffer {
    this.assertOpen();
    return this.#buffer;
  }

  /** For the peer. */
  get remote(): RemoteMemory {
    return { addr: exact(this.iova), rkey: this.rkey, length: this.length };
  }

  /**
   * A piece of the region for `sgList`, by default all from `offset` on. Bytes.
   * @throws RangeError when it is not inside the region
   */
  slice(offset = 0, length = this.length - offset): Sge {
    checkInteger('offset', offset, 0, this.length);
    checkInteger('length', length, 0, this.length - offset);
    return { addr: this.addr + offset, length, lkey: this.lkey };
  }

  protected free(): void {
    const refused = this.#memory.card.exports.mrDereg(this.#handle);
    if (refused !== 0) throw new VerbsError('EBUSY', `${this} is in use by a transfer (${nameOf(Errno, refused)})`);
    this.#memory.release(this.#allocation);
  }
}

function allocationFor(memory: CardMemory, source: number | Uint8Array): Allocation {
  if (typeof source === 'number') {
    checkInteger('length', source, 1, 0xffffffff);
    const allocation = memory.allocate(source);
    if (allocation !== undefined) return allocation;
    throw new VerbsError(
      'ENOMEM',
      `${source} bytes do not fit; the device has ${memory.card.exports.memAvailable()} bytes left of memoryBytes ${memory.card.options.memoryBytes}`,
    );
  }
  if (!(source instanceof Uint8Array))
    throw new TypeError(`regMr takes a length, a Buffer of a region, or a region, not ${show(source)}`);
  const allocation = memory.share(source);
  if (allocation !== undefined) return allocation;
  throw new TypeError(
    `these ${source.length} bytes do not lie in the memory of a region of this device; the card reaches only its own ` +
      'memory: register a length and copy into its buffer',
  );
}

function exact(value: number | bigint): number | bigint {
  return value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
}
