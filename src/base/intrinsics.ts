/** Properties of built-in objects, read past what a program may have put in their place. */

/** Bytes of a Uint8Array. */
export const lengthOf = typedArrayGetter<number>('length');
/** Offset of the bytes of a Uint8Array in its buffer. */
export const offsetOf = typedArrayGetter<number>('byteOffset');
/** The buffer of a Uint8Array. */
export const bufferOf = typedArrayGetter<ArrayBufferLike>('buffer');

const bytesOfArrayBuffer = getterOf(ArrayBuffer.prototype, 'byteLength');
// a page may have none
const bytesOfShared =
  typeof SharedArrayBuffer === 'undefined' ? undefined : getterOf(SharedArrayBuffer.prototype, 'byteLength');
const resizable = getterOf(ArrayBuffer.prototype, 'resizable');

/** Returns whether a value is an ArrayBuffer, of this or another realm. */
export function isArrayBuffer(value: unknown): value is ArrayBuffer {
  return accepts(bytesOfArrayBuffer, value);
}

/** Returns whether a value is a SharedArrayBuffer, of this or another realm. */
export function isSharedArrayBuffer(value: unknown): value is SharedArrayBuffer {
  return accepts(bytesOfShared, value);
}

/** Returns whether a buffer may become shorter. */
export function isResizable(buffer: ArrayBufferLike): boolean {
  return isArrayBuffer(buffer) && resizable?.call(buffer) === true;
}

type Getter = ((this: unknown) => unknown) | undefined;

function getterOf(prototype: object, name: string): Getter {
  return Object.getOwnPropertyDescriptor(prototype, name)?.get;
}

/** Returns whether a getter belongs to the class of a value: others it refuses. */
function accepts(getter: Getter, value: unknown): boolean {
  try {
    getter?.call(value);
    return getter !== undefined;
  } catch {
    return false;
  }
}

function typedArrayGetter<Value>(name: string): (of: Uint8Array) => Value {
  const typedArray = Object.getPrototypeOf(Uint8Array.prototype) as object;
  const get = getterOf(typedArray, name) as (this: Uint8Array) => Value;
  return (of) => get.call(of);
}
