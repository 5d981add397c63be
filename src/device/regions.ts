/**
 * Registered memory outside of the card's. The card names it by region and offset, and accesses it through its imports
 * (assembly/host/place.ts). All instances of a card in a process share one table, which is the addon's
 * (native/core/regions.h). Without the addon it is here: only the thread of the application runs the card then.
 */
import { bufferOf, lengthOf, offsetOf } from '../base/intrinsics.js';
import { invalidValue, VerbsError } from '../errors.js';
import { type NativeAddon, type NativeRegions as NativeTable, native } from '../native.js';
import { permitMoves, refuseMoves } from './moves.js';

/** Bytes after which the places of the next region begin. Places are numbers: `region * REGION_SPAN + offset`. */
export const REGION_SPAN = 2 ** 32;

/** The imports of the card besides its memory. Each returns 1, or 0 if the access is refused. */
export interface CardImports {
  /** Copies `bytes` of a region to the card's memory. */
  fetch(region: number, offset: number, to: number, bytes: number): number;
  /** Copies `bytes` of the card's memory to a region. */
  place(region: number, offset: number, from: number, bytes: number): number;
  /** Performs an atomic operation on 8 bytes. @param operands in the card's memory; the first becomes the old value */
  atomic(region: number, offset: number, operation: number, operands: number): number;
}

/** The regions of a card. Change them only while no turn is taken (`Card.exclusively`). */
export interface Regions {
  readonly imports: CardImports;
  /**
   * Adds a region, which keeps its memory whatever the program does with the ArrayBuffer.
   * @returns its number
   * @throws TypeError for the card's own memory; VerbsError ENOMEM if there are too many; EOPNOTSUPP if this runtime
   * cannot keep the memory
   */
  add(bytes: Uint8Array, isWritable: boolean): number;
  /** Changes whether the card may write a region. */
  setWritable(region: number, isWritable: boolean): void;
  /** Exchanges the memory of a region. @param bytes as many as it has, of an ArrayBuffer that no program has */
  move(region: number, bytes: Uint8Array): void;
  /** Removes a region. */
  remove(region: number): void;
  /** Copies the bytes at a place. @returns false if they are not all in its region */
  read(place: number, into: Uint8Array): boolean;
}

/** Returns the table of a card, or joins it in another thread. @param cardMemory all of the card's memory */
export function openRegions(cardMemory: Uint8Array): Regions {
  let addon: NativeAddon;
  try {
    addon = native();
  } catch {
    return new OwnRegions(cardMemory);
  }
  return new NativeRegions(addon, cardMemory);
}

const EINVAL = 22;

/** A region, as its table knows it in JavaScript. */
interface Region {
  bytes: Uint8Array;
  isWritable: boolean;
}

/** Copies up to this length are faster in V8: a call of the addon takes 50 ns. */
const SHORT = 32;

/** The table of the addon. */
export class NativeRegions implements Regions {
  readonly imports: CardImports;
  readonly #regions: NativeTable;
  /** The regions that this thread has added, by number, for short copies. */
  readonly #added: (Region | undefined)[] = [];

  constructor(addon: NativeAddon, cardMemory: Uint8Array) {
    this.#regions = new addon.Regions(cardMemory);
    const { fetch, place, atomic } = this.#regions.imports();
    const added = this.#added;
    // a function of JavaScript calls one of Node-API faster than the card could
    this.imports = {
      fetch: (region, offset, to, bytes) =>
        copiesShort(added[region]?.bytes, offset, cardMemory, to >>> 0, bytes) ? 1 : fetch(region, offset, to, bytes),
      place(region, offset, from, bytes) {
        const known = added[region];
        const target = known?.isWritable ? known.bytes : undefined;
        return copiesShort(cardMemory, from >>> 0, target, offset, bytes) ? 1 : place(region, offset, from, bytes);
      },
      atomic: (region, offset, operation, operands) => atomic(region, offset, operation, operands),
    };
  }

  add(bytes: Uint8Array, isWritable: boolean): number {
    const region = this.#regions.add(bytes, isWritable);
    if (region > 0) {
      refuseMoves(bufferOf(bytes));
      this.#added[region] = { bytes, isWritable };
      return region;
    }
    if (region === 0) throw tooMany();
    if (region === -EINVAL)
      throw invalidValue("the memory is the card's own: register a part of the buffer of a region");
    throw new VerbsError(
      'EOPNOTSUPP',
      'this runtime does not let an addon keep the memory of an ArrayBuffer (V8 of Node does): ' +
        'register a SharedArrayBuffer, or a number of bytes',
    );
  }

  setWritable(region: number, isWritable: boolean): void {
    this.#regions.setWritable(region, isWritable);
    const known = this.#added[region];
    if (known) known.isWritable = isWritable;
  }

  move(region: number, bytes: Uint8Array): void {
    const known = this.#added[region];
    if (known === undefined) return;
    this.#regions.move(region, bytes);
    permitMoves(bufferOf(known.bytes));
    known.bytes = bytes;
  }

  remove(region: number): void {
    const known = this.#added[region];
    if (known === undefined) return;
    this.#regions.remove(region);
    permitMoves(bufferOf(known.bytes));
    this.#added[region] = undefined;
  }

  read(place: number, into: Uint8Array): boolean {
    return this.#regions.read(Math.floor(place / REGION_SPAN), place % REGION_SPAN, into);
  }
}

/**
 * Copies a few bytes. Offsets and lengths may be negative, as numbers of 32 bits come from the card.
 * @returns false, and nothing is copied, if there are many, or they are not all inside: memory that was transferred has
 * no bytes
 */
function copiesShort(
  from: Uint8Array | undefined,
  at: number,
  to: Uint8Array | undefined,
  into: number,
  bytes: number,
): boolean {
  if (from === undefined || to === undefined || bytes > SHORT || Math.min(bytes, at, into) < 0) return false;
  if (at + bytes > lengthOf(from) || into + bytes > lengthOf(to)) return false;
  for (let i = 0; i < bytes; i++) to[into + i] = from[at + i] as number;
  return true;
}

const MAX_REGIONS = 2 ** 20;
/** Values of AtomicOperation (assembly/host/place.ts). */
const COMPARE_SWAP = 0;
const FETCH_ADD = 1;
const STORE = 2;

/**
 * A table for the card in this thread. An access to an ArrayBuffer that was transferred is refused: its view has no
 * bytes any more.
 */
export class OwnRegions implements Regions {
  readonly #byNumber = new Map<number, Region>();
  #last = 0;

  constructor(readonly cardMemory: Uint8Array) {}

  readonly imports: CardImports = {
    fetch: (region, offset, to, bytes) => this.#copy(this.#find(region, offset, bytes, false), this.#card(to, bytes)),
    place: (region, offset, from, bytes) =>
      this.#copy(this.#card(from, bytes), this.#find(region, offset, bytes, true)),
    atomic: (region, offset, operation, operands) =>
      this.#operate(this.#find(region, offset, 8, true), operation, this.#card(operands, 16)),
  };

  add(bytes: Uint8Array, isWritable: boolean): number {
    if (this.#byNumber.size === MAX_REGIONS) throw tooMany();
    do this.#last = (this.#last % MAX_REGIONS) + 1;
    while (this.#byNumber.has(this.#last));
    this.#byNumber.set(this.#last, { bytes, isWritable });
    return this.#last;
  }

  setWritable(region: number, isWritable: boolean): void {
    const found = this.#byNumber.get(region);
    if (found) found.isWritable = isWritable;
  }

  move(region: number, bytes: Uint8Array): void {
    const found = this.#byNumber.get(region);
    if (found) found.bytes = bytes;
  }

  remove(region: number): void {
    this.#byNumber.delete(region);
  }

  read(place: number, into: Uint8Array): boolean {
    const from = this.#find(Math.floor(place / REGION_SPAN), place % REGION_SPAN, into.length, false);
    return this.#copy(from, into) === 1;
  }

  #find(region: number, offset: number, bytes: number, writes: boolean): Uint8Array | undefined {
    const found = this.#byNumber.get(region >>> 0);
    return found && (found.isWritable || !writes) ? part(found.bytes, offset >>> 0, bytes >>> 0) : undefined;
  }

  #card(offset: number, bytes: number): Uint8Array | undefined {
    return part(this.cardMemory, offset >>> 0, bytes >>> 0);
  }

  #copy(from: Uint8Array | undefined, to: Uint8Array | undefined): number {
    if (from === undefined || to === undefined) return 0;
    to.set(from);
    return 1;
  }

  #operate(at: Uint8Array | undefined, operation: number, operands: Uint8Array | undefined): number {
    if (at === undefined || operands === undefined || operation >>> 0 > STORE) return 0;
    const pad = new BigUint64Array(operands.buffer, operands.byteOffset, 2);
    const [first, second] = [pad[0] as bigint, pad[1] as bigint];
    if (offsetOf(at) % 8 === 0) pad[0] = operateAligned(new BigUint64Array(bufferOf(at), offsetOf(at), 1));
    else pad[0] = operateUnaligned(new DataView(bufferOf(at), offsetOf(at), 8));
    return 1;

    function operateAligned(word: BigUint64Array): bigint {
      if (operation === COMPARE_SWAP) return Atomics.compareExchange(word, 0, first, second);
      return operation === FETCH_ADD ? Atomics.add(word, 0, first) : Atomics.exchange(word, 0, first);
    }
    function operateUnaligned(word: DataView): bigint {
      const before = word.getBigUint64(0, true);
      if (operation === FETCH_ADD) word.setBigUint64(0, before + first, true);
      else if (operation !== COMPARE_SWAP) word.setBigUint64(0, first, true);
      else if (before === first) word.setBigUint64(0, second, true);
      return before;
    }
  }
}

/** Returns a part of memory, or undefined if it is not all inside. */
function part(memory: Uint8Array, offset: number, bytes: number): Uint8Array | undefined {
  return offset + bytes <= lengthOf(memory) ? memory.subarray(offset, offset + bytes) : undefined;
}

function tooMany(): VerbsError {
  return new VerbsError('ENOMEM', `the card has ${MAX_REGIONS} regions outside of its memory, and can have no more`);
}
