/** The memory that a region takes: allocated in the card, a part of the card's, or memory of the program. */
import {
  bufferOf,
  isArrayBuffer,
  isResizable,
  isSharedArrayBuffer,
  lengthOf,
  offsetOf,
} from '../../base/intrinsics.js';
import { checkInteger, wrongType } from '../../base/options.js';
import type { Allocation, CardMemory } from '../../device/memory.js';
import { invalidValue, outOfRange, VerbsError } from '../../errors.js';
import { bufferOver } from './copy.js';

/** Memory of the program: all of a buffer, or the part of it that a view shows. */
export type MemorySource = ArrayBuffer | SharedArrayBuffer | ArrayBufferView;

/** Memory that a region uses until `memory.unref(allocation)`. */
export interface HeldMemory {
  readonly allocation: Allocation;
  readonly addr: number;
  readonly length: number;
  readonly buffer: Buffer;
}

/** The card's lengths have 32 bits. */
const MAX_BYTES = 0xffffffff;

/** Allocates memory in the card. @throws RangeError; VerbsError ENOMEM */
export function allocateMemory(memory: CardMemory, length: number): HeldMemory {
  checkInteger('length', length, 1, MAX_BYTES);
  const allocation = memory.allocate(length);
  const { card } = memory;
  if (allocation === undefined)
    throw new VerbsError(
      'ENOMEM',
      `${length} bytes do not fit: ${card.exports.memAvailable()} bytes are left of memoryBytes ${card.options.memoryBytes}`,
    );
  const { addr } = allocation;
  return { allocation, addr, length, buffer: bufferOver(card.bytes.subarray(addr, addr + length)) };
}

/**
 * Takes memory that exists.
 * @param bytes from `registrable`
 * @param isWritable whether the card may write memory of the program
 * @throws TypeError for memory of the card outside of its regions; VerbsError ENOMEM, EOPNOTSUPP
 */
export function holdMemory(memory: CardMemory, bytes: Uint8Array, isWritable: boolean): HeldMemory {
  const inCard = memory.contains(bytes);
  const allocation = inCard ? memory.refAround(bytes) : memory.reach(bytes, isWritable);
  const length = lengthOf(bytes);
  if (allocation === undefined)
    throw invalidValue(`the ${length} bytes are in the card's memory, but not in that of a region`);
  return { allocation, addr: inCard ? offsetOf(bytes) : allocation.addr, length, buffer: bufferOver(bytes) };
}

/**
 * Returns the bytes of memory that can be registered.
 * @param name of the argument
 * @param others other values that the argument may have, for a message: `a length, `
 * @throws TypeError, RangeError for memory that cannot
 */
export function registrable(memory: CardMemory, source: MemorySource, name: string, others = ''): Uint8Array {
  const bytes = bytesOf(source);
  if (bytes === undefined)
    throw wrongType(name, source, `${others}memory (a Buffer, view, ArrayBuffer or SharedArrayBuffer), or a region`);
  if (memory.contains(bytes)) return bytes;
  if (isResizable(bufferOf(bytes)))
    throw invalidValue(
      'the ArrayBuffer is resizable: it may become shorter while a peer accesses it. Register one of fixed length, or ' +
        'a SharedArrayBuffer, which can only grow',
    );
  const length = lengthOf(bytes);
  if (length < 1 || length > MAX_BYTES)
    throw outOfRange(
      `the memory has ${length} bytes, a region must have 1 to ${MAX_BYTES}${length > 1 ? ': register several' : ''}`,
    );
  return bytes;
}

/** Returns undefined for what is no memory. */
function bytesOf(source: MemorySource): Uint8Array | undefined {
  if (ArrayBuffer.isView(source))
    return source instanceof Uint8Array ? source : new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  // a detached one has no bytes
  if (isArrayBuffer(source) && source.byteLength === 0) return new Uint8Array(0);
  return isArrayBuffer(source) || isSharedArrayBuffer(source) ? new Uint8Array(source) : undefined;
}
