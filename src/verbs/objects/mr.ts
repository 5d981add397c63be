/** Memory regions: registered memory that the card accesses by keys. */

import { lengthOf } from '../../base/intrinsics.js';
import {
  anything,
  type Checks,
  bytes as checkBytes,
  checkInteger,
  checkOptions,
  checkU64,
  show,
  wrongType,
} from '../../base/options.js';
import { Access, Errno, nameOf } from '../../device/codes.js';
import { hex } from '../../device/decode.js';
import type { CardMemory, MemoryPart } from '../../device/memory.js';
import { invalidType, invalidValue, VerbsError } from '../../errors.js';
import { type AccessFlags, type AccessName, accessBits, accessNames } from '../access.js';
import { type Description, jsonNumber } from '../diagnose/describe.js';
import type { Sge } from '../work/wr.js';
import { bufferOver, copyInto, copyOf } from './copy.js';
import type { Domain } from './domain.js';
import { allocateMemory, type HeldMemory, holdMemory, type MemorySource, registrable } from './memorysource.js';
import { Resource } from './resource.js';

/** Options of `pd.regMr`. */
export interface MrOptions {
  /**
   * Access rights; local reading is always allowed. The queue pair needs the same remote rights. `remoteWrite` and
   * `remoteAtomic` also need `localWrite`. Default: `['localWrite']`.
   */
  readonly access?: AccessFlags;
  /** Remote address of the first byte, 64 bits (ibv_reg_mr_iova). Default: `mr.addr`. */
  readonly iova?: number | bigint;
}

/** Changes by `mr.rereg`; omitted properties stay unchanged. */
export interface ReregOptions {
  /** New access rights. */
  readonly access?: AccessFlags;
  /** New protection domain, of the same device. */
  readonly pd?: Domain;
  /** New memory, as in `pd.regMr`: number of bytes to allocate, memory of the program, or a region. */
  readonly buffer?: number | MemorySource | Mr;
  /** New remote address of the first byte. Default: unchanged; with new memory, `mr.addr`. */
  readonly iova?: number | bigint;
}

const CHECKS: Checks<MrOptions> = { access: accessBits, iova: checkU64 };
const REREG_CHECKS: Checks<ReregOptions> = {
  ...CHECKS,
  // Not by its class, which imports this file.
  pd: (name, pd) => {
    if ((pd as Partial<Domain> | null)?.kind !== 'pd') throw wrongType(name, pd, 'a protection domain');
  },
  buffer: anything,
};

/** Address, key and length of a region, for its peer. From `mr.remote`; plain data, to be sent as JSON. */
export interface RemoteMemory {
  /** Remote address of the first byte. A bigint, which JSON cannot represent, only for an `iova` above 2^53 - 1. */
  readonly addr: number | bigint;
  /** Remote key, 32 bits. */
  readonly rkey: number;
  /** Length in bytes. */
  readonly length: number;
}

/** Memory of a region, with the arguments of its registration. */
interface Registration extends HeldMemory {
  readonly iova: number | bigint;
  readonly access: number;
}

/**
 * A memory region (ibv_mr), over memory that `pd.regMr` has allocated, or over memory of the program.
 *
 * Allocated memory is a part of the card's memory, a SharedArrayBuffer. It is zeroed, and freed when the last region
 * over it is closed. **A Buffer outlives its region**: a `buffer` that the program has kept then still shows that
 * memory, which may belong to a later region, but never to the card's objects. Do not use it any more.
 *
 * Memory of the program is not copied. The region keeps it from garbage collection until it is closed, and after that
 * the card does not touch it. If the program transfers its ArrayBuffer meanwhile (`ArrayBuffer.prototype.transfer`,
 * `postMessage`), or a WebAssembly memory grows, the region stays on the same bytes, which the new ArrayBuffer shows,
 * and `buffer` is empty.
 *
 * **Peers access the memory at any time.** Between a request and its completion, and as long as a remote key is out, it
 * changes while JavaScript runs, even an ArrayBuffer that no other thread has. Bytes read then may be of two writes,
 * and the same element may have another value when it is read again: read what is complete, or copy first. V8 relies on
 * no value of such memory, so it stays intact.
 *
 * @example
 * ```ts
 * const mr = await pd.regMr(4096, { access: ['localWrite', 'remoteRead', 'remoteWrite'] });
 * mr.buffer.write('hello');
 * qp.postSend({ opcode: 'SEND', sgList: mr.sge(0, 5) });
 * console.log(JSON.stringify(mr.remote));
 * ```
 */
export class Mr extends Resource {
  /** Always `mr`. */
  readonly kind = 'mr';
  readonly #memory: CardMemory;
  readonly #handle: number;
  #pd: Domain;
  #registration: Registration;
  #lkey = 0;
  #rkey = 0;

  /** @internal Use `pd.regMr`. */
  constructor(pd: Domain, handle: number, memory: CardMemory, source: number | MemorySource | Mr, options: MrOptions) {
    super([pd]);
    const { access: rights = ['localWrite'], iova } = checkOptions('regMr', options, CHECKS);
    const access = accessBits('access', rights);
    pd.assertOpen();
    this.#pd = pd;
    this.#memory = memory;
    this.#registration = createRegistration(access, iova, () => holdSource(memory, source, access));
    const { exports } = memory.card;
    this.#handle = exports.mrReg(handle, ...cardArguments(this.#registration));
    if (this.#handle === 0) {
      memory.unref(this.#registration.allocation);
      if (exports.lastErrno() === Errno.ENOMEM)
        throw new VerbsError('ENOMEM', `no memory region left: the device has ${memory.card.options.maxMr}`);
      throw registrationError(this.#registration, exports.lastErrno());
    }
    this.#readKeys();
    this.addToParents();
  }

  /** The region's local key. */
  get label(): string {
    return `lkey ${hex(this.lkey)}`;
  }

  /** Protection domain of the region. */
  get pd(): Domain {
    return this.#pd;
  }
  /** Length in bytes. */
  get length(): number {
    return this.#registration.length;
  }
  /** Address of the first byte for `Sge.addr`: in the card's memory, or 2^32 and more for memory of the program. */
  get addr(): number {
    return this.#registration.addr;
  }
  /** Remote address of the first byte, 64 bits; 0 for a zero-based region. */
  get iova(): number | bigint {
    return this.#registration.iova;
  }
  /** Access rights. */
  get access(): readonly AccessName[] {
    return accessNames(this.#registration.access);
  }
  /** Local key, 32 bits, for `Sge.lkey`. */
  get lkey(): number {
    return this.#lkey;
  }
  /** Remote key, 32 bits, for the peer. */
  get rkey(): number {
    return this.#rkey;
  }

  /** The registered memory. @throws VerbsError EINVAL after close */
  get buffer(): Buffer {
    this.assertOpen();
    return this.#registration.buffer;
  }

  /** Address, key and length of the region, for the peer; plain data. */
  get remote(): RemoteMemory {
    return { addr: asNumberIfExact(this.iova), rkey: this.rkey, length: this.length };
  }

  /**
   * Returns a part of the region as a scatter/gather element.
   * @param offset bytes from the start. Default 0
   * @param length bytes. Default: up to the end
   * @throws TypeError, RangeError when the part is not inside the region
   */
  sge(offset = 0, length = this.length - offset): Sge {
    checkInteger('offset', offset, 0, this.length);
    checkInteger('length', length, 0, this.length - offset);
    return { addr: this.addr + offset, length, lkey: this.lkey };
  }

  /** @internal Everywhere else in JavaScript, its arguments would be start and end. @throws TypeError always */
  slice(..._: unknown[]): never {
    throw noSlice();
  }

  /**
   * Copies bytes into the region. It takes less time than `mr.buffer.set` when they are many.
   * @param offset bytes from the start. Default 0
   * @throws TypeError, RangeError when they do not fit; VerbsError EINVAL after close
   */
  copyIn(bytes: Uint8Array, offset = 0): void {
    checkBytes('bytes', bytes);
    checkInteger('offset', offset, 0, this.length);
    checkInteger('bytes.length', lengthOf(bytes), 0, this.length - offset);
    copyInto(this.buffer, bytes, offset);
  }

  /**
   * Returns a copy of a part of the region, which belongs to the caller. It takes less time than `Buffer.from` when the
   * part is large.
   * @param offset bytes from the start. Default 0
   * @param length bytes. Default: up to the end
   * @throws TypeError, RangeError when the part is not inside the region; VerbsError EINVAL after close
   */
  copyOut(offset = 0, length = this.length - offset): Buffer {
    checkInteger('offset', offset, 0, this.length);
    checkInteger('length', length, 0, this.length - offset);
    return copyOf(this.buffer.subarray(offset, offset + length));
  }

  /**
   * Copies a part of the region into other memory, all of which it fills. It takes less time than `set` when the part
   * is large.
   * @param offset bytes from the start. Default 0
   * @throws TypeError, RangeError when the part is not inside the region; VerbsError EINVAL after close
   */
  copyTo(into: Uint8Array, offset = 0): void {
    checkBytes('into', into);
    checkInteger('offset', offset, 0, this.length);
    checkInteger('into.length', lengthOf(into), 0, this.length - offset);
    copyInto(bufferOver(into), this.buffer.subarray(offset, offset + lengthOf(into)));
  }

  /**
   * Re-registers the region with other rights, in another domain, or over other memory (ibv_rereg_mr). Both keys
   * change; requests with the old keys fail. After an error nothing is changed.
   * @throws TypeError, RangeError for wrong arguments; VerbsError EBUSY while memory windows are bound to the region,
   * EINVAL and ENOMEM as `pd.regMr`
   */
  async rereg(options: ReregOptions): Promise<void> {
    const { access, pd = this.#pd, buffer, iova } = checkOptions('mr.rereg', options, REREG_CHECKS);
    const newBits = access === undefined ? undefined : accessBits('access', access);
    this.assertOpen();
    pd.assertOpen();
    if (pd.device !== this.#pd.device) throw invalidValue(`${pd} belongs to another device than ${this}`);
    const { card } = this.#memory;
    const before = this.#registration;
    const bits = newBits ?? before.access;
    const isZeroBased = (bits & Access.ZERO_BASED) !== 0;
    const wasZeroBased = (before.access & Access.ZERO_BASED) !== 0;
    const keptIova = buffer === undefined && !isZeroBased && !wasZeroBased ? before.iova : undefined;
    const next = createRegistration(bits, iova ?? keptIova, () =>
      buffer === undefined ? holdAgain(this.#memory, before) : holdSource(this.#memory, buffer, bits),
    );
    const errno = card.exclusively(() => {
      const refused = card.exports.mrRereg(this.#handle, pd.handle, false, ...cardArguments(next));
      if (refused === 0) this.#memory.setWritable(next.allocation, isWritable(bits));
      return refused;
    });
    if (errno !== 0) {
      this.#memory.unref(next.allocation);
      throw errno === Errno.EBUSY ? boundWindowsError(this) : registrationError(next, errno);
    }
    this.#memory.unref(before.allocation);
    this.#registration = next;
    this.#pd = pd;
    this.#readKeys();
    this.changeParents([pd]);
  }

  /** @internal Makes the local key valid for queue pairs of every protection domain. The remote key is not affected. */
  allowAllDomains(): this {
    this.#memory.card.exports.mrForAllPds(this.#handle);
    return this;
  }

  /** @internal Gives memory back to the program, and goes on with a copy of parts of it. @throws RangeError */
  copyAway(parts: Iterable<MemoryPart>): void {
    this.#memory.copyAway(this.#registration.allocation, parts);
  }

  /** @internal */
  protected override describe(): Description {
    const { length, addr, lkey, rkey, access } = this;
    return { length, addr, iova: jsonNumber(this.iova), lkey, rkey, access };
  }

  /** @internal */
  protected free(): void {
    if (this.#memory.card.exports.mrDereg(this.#handle) !== 0) throw boundWindowsError(this);
    this.#memory.unref(this.#registration.allocation);
  }

  /** Reads both keys from the card. */
  #readKeys(): void {
    const { exports } = this.#memory.card;
    this.#lkey = exports.mrLkey(this.#handle);
    this.#rkey = exports.mrRkey(this.#handle);
  }
}

/**
 * Checks the arguments of a registration.
 * @param hold takes the memory, once they are right
 * @throws TypeError, RangeError; as `hold`
 */
function createRegistration(access: number, iova: number | bigint | undefined, hold: () => HeldMemory): Registration {
  const isZeroBased = (access & Access.ZERO_BASED) !== 0;
  if (isZeroBased && iova !== undefined && BigInt(checkU64('iova', iova)) !== 0n)
    throw invalidValue(`iova is ${show(iova)}, must be 0 for a region with access zeroBased`);
  const requestedIova = iova === undefined ? undefined : checkU64('iova', iova);
  const held = hold();
  return { ...held, access, iova: isZeroBased ? 0 : (requestedIova ?? held.addr) };
}

/** Takes the memory that an argument names. @throws as `pd.regMr` */
function holdSource(memory: CardMemory, source: number | MemorySource | Mr, access: number): HeldMemory {
  if (typeof source === 'number') return allocateMemory(memory, source);
  const bytes = registrable(memory, memoryOf(memory, source), 'source', 'a length, ');
  return holdMemory(memory, bytes, isWritable(access));
}

/** Takes the memory that a region has already. */
function holdAgain(memory: CardMemory, { allocation, addr, length, buffer }: Registration): HeldMemory {
  memory.ref(allocation);
  return { allocation, addr, length, buffer };
}

/** @internal Returns the memory of a region, or what is none. @throws TypeError for a region of another device */
export function memoryOf<Source>(memory: CardMemory, source: Source | Mr): Source | Buffer {
  if (!(source instanceof Mr)) return source;
  if (source.pd.device.memory !== memory)
    throw invalidValue(`${source} belongs to another device: register its buffer`);
  return source.buffer;
}

/** Returns the arguments of a registration by the card. */
function cardArguments({ addr, length, access, iova }: Registration) {
  return [...splitU64(addr), length, cardAccess(access), ...splitU64(iova)] as const;
}

/** @internal Returns whether the card may write the memory. */
export function isWritable(access: number): boolean {
  return (access & Access.LOCAL_WRITE) !== 0;
}

/** Returns the rights without ZERO_BASED, which the card does not know: it gets an explicit iova. */
function cardAccess(access: number): number {
  return access & ~Access.ZERO_BASED;
}

/** @internal Splits a 64-bit value into two words, high first, for calls of the card. */
export function splitU64(value: number | bigint): [high: number, low: number] {
  const wide = BigInt(value);
  return [Number(wide >> 32n), Number(wide & 0xffffffffn)];
}

function boundWindowsError(mr: Mr): VerbsError {
  return new VerbsError('EBUSY', `${mr} has memory windows bound to it: invalidate or close them first`);
}

function registrationError({ length, access, iova }: Registration, errno: number): VerbsError {
  return new VerbsError(
    'EINVAL',
    `a region of ${length} bytes with access ${accessNames(access).join(', ') || 'none'} at iova ${iova} was refused ` +
      `(${nameOf(Errno, errno)}): remoteWrite and remoteAtomic need localWrite, and iova + length must not exceed 2^64`,
  );
}

function asNumberIfExact(value: number | bigint): number | bigint {
  return value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
}

/** @internal The error of `slice`, which regions had before `sge`. */
export function noSlice(): TypeError {
  return invalidType('a region has no slice(start, end): use sge(offset, length)');
}
