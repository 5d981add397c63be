/**
 * Functions that remember their last results. Most addresses are asked for again, several times for each connection,
 * and most connections of a program have the same private data.
 */

/** Results that a function remembers. A power of two. */
const MAX_REMEMBERED = 256;

/** Returns a function of texts that remembers its last results. It forgets all when there are too many. */
export function remembered<T>(parse: (text: string) => T): (text: string) => T {
  const known = new Map<string, T>();
  return (text) => {
    const found = known.get(text);
    if (found !== undefined) return found;
    const result = parse(text);
    if (known.size === MAX_REMEMBERED) known.clear();
    known.set(text, result);
    return result;
  };
}

/** Returns a function of bytes that remembers its last results. A result replaces another of the same hash. */
export function rememberedOfBytes<T>(make: (bytes: Uint8Array) => T): (bytes: Uint8Array) => T {
  const known: ({ readonly bytes: Uint8Array; readonly result: T } | undefined)[] = new Array(MAX_REMEMBERED);
  return (bytes) => {
    let hash = 0;
    for (let i = 0; i < bytes.length; i++) hash = (Math.imul(hash, 31) + (bytes[i] as number)) | 0;
    const slot = hash & (MAX_REMEMBERED - 1);
    const found = known[slot];
    if (found !== undefined && areEqual(found.bytes, bytes)) return found.result;
    // the caller may change its bytes; `slice` of a Buffer is no copy
    const copy = Uint8Array.from(bytes);
    const result = make(copy);
    known[slot] = { bytes: copy, result };
    return result;
  };
}

/** For a few bytes faster than Buffer.compare. */
function areEqual(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}
