/** Node's global objects that the verbs use, for a page: the build replaces their names by these. */

/** The bytes of a region, with the methods of Node's Buffer that the verbs and the page use. */
class Bytes extends Uint8Array {
  override toString(encoding?: string): string {
    return encoding === 'hex'
      ? Array.from(this, (byte) => byte.toString(16).padStart(2, '0')).join('')
      : new TextDecoder().decode(Uint8Array.from(this)); // a copy: browsers decode no shared memory
  }
}

function from(source: string | ArrayBufferLike | ArrayLike<number>, start?: string | number, length?: number): Bytes {
  if (typeof source === 'string')
    return start === 'hex'
      ? new Bytes(Array.from(source.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16)))
      : new Bytes(new TextEncoder().encode(source));
  return typeof start === 'number'
    ? new Bytes(source as ArrayBuffer, start, length)
    : new Bytes(source as ArrayLike<number>);
}

export const Buffer = { from };
export const process = {
  arch: 'wasm',
  env: {},
  nextTick: (callback: () => void): void => queueMicrotask(callback),
};
