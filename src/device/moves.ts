/**
 * Before version 13, V8 moves the memory of an ArrayBuffer that a program transfers with another length, even if a
 * second ArrayBuffer has the memory as well. A registered buffer refuses that, as far as the program calls the methods
 * of the buffer itself.
 */
import { isArrayBuffer } from '../base/intrinsics.js';
import { invalidValue } from '../errors.js';

const METHODS = ['transfer', 'transferToFixedLength'] as const;

/** Whether this V8 moves memory. */
const movesMemory = () => METHODS[0] in ArrayBuffer.prototype && Number.parseInt(process.versions.v8, 10) < 13;

/** Regions of a buffer that refuses. */
const regions = new WeakMap<ArrayBufferLike, number>();

/** A buffer has one more region. */
export function refuseMoves(buffer: ArrayBufferLike): void {
  if (!isArrayBuffer(buffer) || !movesMemory()) return;
  const count = regions.get(buffer) ?? 0;
  regions.set(buffer, count + 1);
  if (count > 0) return;
  for (const name of METHODS) {
    const method = Reflect.get(ArrayBuffer.prototype, name) as (length?: number) => ArrayBuffer;
    const value = (length: number = buffer.byteLength) => {
      if (length === buffer.byteLength) return method.call(buffer);
      throw invalidValue(
        `the ArrayBuffer is registered: ${name}(${length}) would move its ${buffer.byteLength} bytes, which V8 before ` +
          'version 13 does while peers access them. Slice it, or transfer it with its length',
      );
    };
    Reflect.defineProperty(buffer, name, { value, configurable: true, writable: true });
  }
}

/** A buffer has one region less. The last one restores its methods. */
export function permitMoves(buffer: ArrayBufferLike): void {
  const count = regions.get(buffer);
  if (count === undefined) return;
  if (count > 1) {
    regions.set(buffer, count - 1);
    return;
  }
  regions.delete(buffer);
  for (const name of METHODS) Reflect.deleteProperty(buffer, name);
}
