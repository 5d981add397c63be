// Network byte order: every multi-byte field on the wire is big endian.

export function get16(ptr: usize): u32 {
  return <u32>bswap<u16>(load<u16>(ptr));
}

export function get32(ptr: usize): u32 {
  return bswap<u32>(load<u32>(ptr));
}

export function get64(ptr: usize): u64 {
  return bswap<u64>(load<u64>(ptr));
}

/** Returns the 24 bits at ptr; also reads the byte before them. */
export function get24(ptr: usize): u32 {
  return bswap<u32>(load<u32>(ptr - 1)) & 0xffffff;
}

export function put16(ptr: usize, value: u32): void {
  store<u16>(ptr, bswap<u16>(<u16>value));
}

export function put32(ptr: usize, value: u32): void {
  store<u32>(ptr, bswap<u32>(value));
}

export function put64(ptr: usize, value: u64): void {
  store<u64>(ptr, bswap<u64>(value));
}

/** Writes a byte and the 24 bits behind it, as in BTH, AETH and DETH. */
export function put8and24(ptr: usize, high: u32, low: u32): void {
  store<u32>(ptr, bswap<u32>((high << 24) | (low & 0xffffff)));
}
