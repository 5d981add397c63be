/**
 * Copies of the card's memory, which threads share. V8 copies shared memory word by word, since another thread may
 * write it at the same time. `Buffer.fill` copies any memory as the C library does: 64 KiB in a third to two thirds of
 * the time.
 */
import { bufferOf, lengthOf, offsetOf } from '../../base/intrinsics.js';

/** Shorter copies are faster in V8 (bytes). */
const LONG = 4096;
/** From here, allocators of C have a mapping of its own for each allocation (bytes). */
const HUGE = 131_072;

/**
 * The last long copy, which would be garbage at the next collection. It usually lies at the end of the heap of the C
 * library, which returns free memory at the end to the system: without it, each collection would cost as many page
 * faults as the collected copies have pages.
 */
const kept: { copy?: Buffer } = {};

/** Copies bytes into memory that has room for them at `offset`. Both may overlap, for which `Buffer.fill` is wrong. */
export function copyInto(memory: Buffer, bytes: Uint8Array, offset = 0): void {
  if (bytes.length < LONG || bufferOf(bytes) === memory.buffer) memory.set(bytes, offset);
  else memory.fill(bytes, offset, offset + bytes.length);
}

/** Returns other memory as a Buffer, which is not copied. */
export function bufferOver(bytes: Uint8Array): Buffer {
  return Buffer.from(bufferOf(bytes), offsetOf(bytes), lengthOf(bytes));
}

/** Returns a copy that belongs to the caller. */
export function copyOf(bytes: Uint8Array): Buffer {
  const copy = Buffer.allocUnsafe(bytes.length);
  copyInto(copy, bytes);
  if (bytes.length >= LONG && bytes.length < HUGE) kept.copy = copy;
  return copy;
}
