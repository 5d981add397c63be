/** Properties of built-in objects, read past what a program may have put in their place. */

/** Bytes of a Uint8Array. */
export const lengthOf = intrinsicGetter<number>('length');
/** Offset of the bytes of a Uint8Array in its buffer. */
export const offsetOf = intrinsicGetter<number>('byteOffset');
/** The buffer of a Uint8Array. */
export const bufferOf = intrinsicGetter<ArrayBufferLike>('buffer');

function intrinsicGetter<Value>(name: string): (of: Uint8Array) => Value {
  const typedArray = Object.getPrototypeOf(Uint8Array.prototype) as object;
  const { get } = Object.getOwnPropertyDescriptor(typedArray, name) as { get(this: Uint8Array): Value };
  return (of) => get.call(of);
}
