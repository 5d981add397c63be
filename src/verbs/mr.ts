/** Memory regions: memory that the card may read and write, under keys. */

import { Access, Errno, nameOf } from '../device/codes.js';
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

/** What `mr.rereg` changes; what is left out stays. */
export interface ReregOptions {
  readonly access?: AccessFlags;
  readonly pd?: Pd;
  /** Other memory, as `pd.regMr` takes it. */
  readonly buffer?: number | Uint8Array | Mr;
  /** Default: that of before, or with other memory its address in the card's memory. */
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

/** Memory, and what the card is to know of it. */
interface Registration {
  readonly allocation: Allocation;
  readonly addr: number;
  readonly length: number;
  readonly iova: number | bigint;
  readonly access: number;
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
  readonly #memory: CardMemory;
  readonly #handle: number;
  #pd: Pd;
  #now: Registration;
  #lkey = 0;
  #rkey = 0;
  #buffer: Buffer;

  /** @internal Use `pd.regMr`. */
  constructor(pd: Pd, handle: number, memory: CardMemory, source: number | Uint8Array | Mr, options: MrOptions) {
    super([pd]);
    const access = accessBits('access', options.access ?? ['localWrite']);
    this.#pd = pd;
    this.#memory = memory;
    this.#now = registration(memory, source, access, options.iova);
    const { addr, length } = this.#now;
    const { exports } = memory.card;
    this.#handle = exports.mrReg(handle, addr, length, rights(access), ...halves(this.#now.iova));
    if (this.#handle === 0) {
      memory.release(this.#now.allocation);
      if (exports.lastErrno() === Errno.ENOMEM)
        throw new VerbsError('ENOMEM', `no memory region left; the device has ${memory.card.options.maxMr}`);
      throw refused(this.#now, exports.lastErrno());
    }
    this.#buffer = this.#readKeys();
    this.opened();
  }

  get label(): string {
    return `lkey ${hex(this.lkey)}`;
  }

  get pd(): Pd {
    return this.#pd;
  }
  /** Bytes. */
  get length(): number {
    return this.#now.length;
  }
  /** Address of the first byte in the card's memory, as `Sge.addr` wants it. */
  get addr(): number {
    return this.#now.addr;
  }
  /** Address of the first byte as the peer names it. */
  get iova(): number | bigint {
    return this.#now.iova;
  }
  get access(): readonly AccessName[] {
    return accessNames(this.#now.access);
  }
  get lkey(): number {
    return this.#lkey;
  }
  get rkey(): number {
    return this.#rkey;
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

  /**
   * Registers anew (ibv_rereg_mr): with other rights, in another domain, over other memory. Both keys change, and what still
   * uses the old ones fails. Nothing is changed when it is refused.
   * @throws TypeError, RangeError; VerbsError EBUSY while memory windows are bound to it, EINVAL, ENOMEM as `pd.regMr`
   */
  async rereg({ access, pd = this.#pd, buffer, iova }: ReregOptions): Promise<void> {
    this.assertOpen();
    pd.assertOpen();
    if (pd.device !== this.#pd.device) throw new TypeError(`${pd} belongs to another device than ${this}`);
    const { exports } = this.#memory.card;
    const before = this.#now;
    const bits = access === undefined ? before.access : accessBits('access', access);
    const isZeroBased = (bits & Access.ZERO_BASED) !== 0;
    const wasZeroBased = (before.access & Access.ZERO_BASED) !== 0;
    const stays = buffer === undefined && !isZeroBased && !wasZeroBased ? before.iova : undefined;
    const next = registration(this.#memory, buffer ?? this.buffer, bits, iova ?? stays);
    const args = [next.addr, next.length, rights(bits), ...halves(next.iova)] as const;
    const errno = exports.mrRereg(this.#handle, pd.handle, ...args);
    if (errno !== 0) {
      this.#memory.release(next.allocation);
      throw errno === Errno.EBUSY ? bound(this) : refused(next, errno);
    }
    this.#memory.release(before.allocation);
    this.#now = next;
    this.#pd = pd;
    this.#buffer = this.#readKeys();
    this.moveTo([pd]);
  }

  protected free(): void {
    if (this.#memory.card.exports.mrDereg(this.#handle) !== 0) throw bound(this);
    this.#memory.release(this.#now.allocation);
  }

  /** Takes over what the card says of it. */
  #readKeys(): Buffer {
    const { card } = this.#memory;
    this.#lkey = card.exports.mrLkey(this.#handle);
    this.#rkey = card.exports.mrRkey(this.#handle);
    return Buffer.from(card.memory.buffer, this.addr, this.length);
  }
}

/** Takes a share in the memory that `source` names, or allocates it. @throws as `pd.regMr` */
function registration(
  memory: CardMemory,
  source: number | Uint8Array | Mr,
  access: number,
  iova: number | bigint | undefined,
): Registration {
  const isZeroBased = (access & Access.ZERO_BASED) !== 0;
  if (isZeroBased && iova !== undefined && BigInt(checkU64('iova', iova)) !== 0n)
    throw new TypeError(`iova is ${show(iova)}; a region with access zeroBased begins at 0`);
  const wanted = iova === undefined ? undefined : checkU64('iova', iova);
  const bytes = source instanceof Mr ? source.buffer : source;
  const allocation = allocationFor(memory, bytes);
  const addr = typeof bytes === 'number' ? allocation.ptr : bytes.byteOffset;
  const length = typeof bytes === 'number' ? bytes : bytes.length;
  return { allocation, addr, length, access, iova: isZeroBased ? 0 : (wanted ?? addr) };
}

/** Rights as the card takes them: it is told where a region begins. */
function rights(access: number): number {
  return access & ~Access.ZERO_BASED;
}

/** @internal A 64-bit value as the card takes it. */
export function halves(value: number | bigint): [high: number, low: number] {
  const wide = BigInt(value);
  return [Number(wide >> 32n), Number(wide & 0xffffffffn)];
}

function bound(mr: Mr): VerbsError {
  return new VerbsError('EBUSY', `${mr} has memory windows bound to it; invalidate or close these first`);
}

function refused({ length, access, iova }: Registration, errno: number): VerbsError {
  return new VerbsError(
    'EINVAL',
    `region of ${length} bytes with access ${accessNames(access).join(', ') || 'none'} at iova ${iova} refused ` +
      `(${nameOf(Errno, errno)}); remoteWrite and remoteAtomic need localWrite, and iova + length must not pass 2^64`,
  );
}

/** @internal */
export function allocationFor(memory: CardMemory, source: number | Uint8Array): Allocation {
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
