// CRC-32 (0xEDB88320 reflected) over a range of bytes, as a register without the customary complements.
//
// Short ranges go through sixteen tables. Longer ones are folded first, which is two to four times as fast: modulo the
// polynomial, a bit equals the sum of itself 145, 183, 211 and 300 bits further on (a multiple of the polynomial with
// only five terms), so shifts and XORs of words reduce a range to its last forty bytes. The same holds for bytes
// instead of bits (the eighth power of that multiple), so XORs of whole vectors first reduce a long range to its last
// 300 bytes.
import { CRC_SCRATCH, CRC_TABLE } from '../memorymap';

const POLYNOMIAL: u32 = 0xedb88320;
/** Lengths in bytes from which words and vectors are folded. */
const SHORTEST_WORDS: u32 = 64;
const SHORTEST_FOLD: u32 = 384;
/** Longest range that is folded at once: the size of the scratch memory. */
const LONGEST_FOLD: u32 = 4352;

/** The folded bytes, behind as many zeroes as the fold reaches back; and the remaining bytes. */
const FOLDED: usize = CRC_SCRATCH + 320;
const LEFT: usize = FOLDED + LONGEST_FOLD + 320;

export function initCrc(): void {
  for (let i: u32 = 0; i < 256; i++) {
    let c = i;
    for (let bit = 0; bit < 8; bit++) c = c & 1 ? (c >>> 1) ^ POLYNOMIAL : c >>> 1;
    store<u32>(CRC_TABLE + ((<usize>i) << 2), c);
  }
  // table k: the same byte with k zero bytes behind it
  for (let i: u32 = 0; i < 256; i++) {
    let c = entry(0, i);
    for (let k: u32 = 1; k < 16; k++) {
      c = entry(0, c & 255) ^ (c >>> 8);
      store<u32>(CRC_TABLE + ((<usize>k) << 10) + ((<usize>i) << 2), c);
    }
  }
}

function entry(table: u32, byte: u32): u32 {
  return load<u32>(CRC_TABLE + ((<usize>table) << 10) + ((<usize>byte) << 2));
}

function four(word: u32, table: u32): u32 {
  return (
    entry(table + 3, word & 255) ^
    entry(table + 2, (word >>> 8) & 255) ^
    entry(table + 1, (word >>> 16) & 255) ^
    entry(table, word >>> 24)
  );
}

/** Returns the register after `bytes` bytes at `ptr`. Up to 15 bytes behind them are read but do not count. */
export function crc(register: u32, ptr: usize, bytes: u32): u32 {
  while (bytes >= SHORTEST_FOLD) {
    let part = min(bytes, LONGEST_FOLD);
    register = fold(register, ptr, part);
    ptr += part;
    bytes -= part;
  }
  return bytes >= SHORTEST_WORDS ? foldWords(register, ptr, bytes) : byTables(register, ptr, bytes);
}

/** Returns the register after four more words, given as loaded. */
export function crcOfFour(register: u32, a: u32, b: u32, c: u32, d: u32): u32 {
  return four(a ^ register, 12) ^ four(b, 8) ^ four(c, 4) ^ four(d, 0);
}

/** The same for three words. */
export function crcOfThree(register: u32, a: u32, b: u32, c: u32): u32 {
  return four(a ^ register, 8) ^ four(b, 4) ^ four(c, 0);
}

/** The same for two words of 64 bits. */
function crcOfLong(register: u32, a: u64, b: u64): u32 {
  return crcOfFour(register, <u32>a, <u32>(a >> 32), <u32>b, <u32>(b >> 32));
}

function byTables(register: u32, ptr: usize, bytes: u32): u32 {
  for (let end = ptr + (bytes & ~15); ptr < end; ptr += 16)
    register = crcOfFour(register, load<u32>(ptr), load<u32>(ptr, 4), load<u32>(ptr, 8), load<u32>(ptr, 12));
  if (bytes & 8) {
    register = four(load<u32>(ptr) ^ register, 4) ^ four(load<u32>(ptr, 4), 0);
    ptr += 8;
  }
  if (bytes & 4) {
    register = four(load<u32>(ptr) ^ register, 0);
    ptr += 4;
  }
  for (let end = ptr + (bytes & 3); ptr < end; ptr++)
    register = entry(0, (register ^ <u32>load<u8>(ptr)) & 255) ^ (register >>> 8);
  return register;
}

/** Returns what earlier vectors contribute to the vector at `at`. */
function carried(at: usize): v128 {
  return v128.xor(
    v128.xor(v128.load(at - 145), v128.load(at - 183)),
    v128.xor(v128.load(at - 211), v128.load(at - 300)),
  );
}

/** Folds vectors: from SHORTEST_FOLD to LONGEST_FOLD bytes. */
function fold(register: u32, ptr: usize, bytes: u32): u32 {
  let folded = (bytes - 300) & ~15;
  let end = FOLDED + folded;
  let source = ptr - FOLDED;
  // the register is XORed into the first four bytes
  v128.store(FOLDED, v128.xor(v128.load(ptr), i32x4.replace_lane(i32x4.splat(0), 0, register)));
  let at: usize = FOLDED + 16;
  for (; at + 64 <= end; at += 64) {
    v128.store(at, v128.xor(v128.load(source + at), carried(at)));
    v128.store(at, v128.xor(v128.load(source + at, 16), carried(at + 16)), 16);
    v128.store(at, v128.xor(v128.load(source + at, 32), carried(at + 32)), 32);
    v128.store(at, v128.xor(v128.load(source + at, 48), carried(at + 48)), 48);
  }
  for (; at < end; at += 16) v128.store(at, v128.xor(v128.load(source + at), carried(at)));
  // nothing was folded behind the end, so it must be zero
  memory.fill(end, 0, 320);
  let left = bytes - folded;
  for (let i: usize = 0; i < left; i += 16)
    v128.store(LEFT + i, v128.xor(v128.load(source + end + i), carried(end + i)));
  return foldWords(0, LEFT, left);
}

/**
 * Folds words: from SHORTEST_WORDS bytes on, eight bytes at a time. The contribution to later words is kept in the five
 * words that it reaches.
 */
function foldWords(register: u32, ptr: usize, bytes: u32): u32 {
  let a: u64 = register;
  let b: u64 = 0;
  let c: u64 = 0;
  let d: u64 = 0;
  let e: u64 = 0;
  let end = ptr + bytes;
  for (; ptr + 48 <= end; ptr += 8) {
    let word = load<u64>(ptr) ^ a;
    a = b;
    b = c ^ (word << 17) ^ (word << 55);
    c = d ^ (word >> 47) ^ (word >> 9) ^ (word << 19);
    d = e ^ (word >> 45) ^ (word << 44);
    e = word >> 20;
  }
  register = crcOfLong(0, load<u64>(ptr) ^ a, load<u64>(ptr, 8) ^ b);
  register = crcOfLong(register, load<u64>(ptr, 16) ^ c, load<u64>(ptr, 24) ^ d);
  let last = load<u64>(ptr, 32) ^ e;
  register = four(<u32>last ^ register, 4) ^ four(<u32>(last >> 32), 0);
  return byTables(register, ptr + 40, <u32>(end - ptr) - 40);
}

/** x^0 in reflected bit order. */
export const ONE: u32 = 0x80000000;

/** a·b modulo the polynomial, both reflected. */
export function multiply(a: u32, b: u32): u32 {
  let product: u32 = 0;
  for (let bit = ONE; bit != 0; bit >>>= 1) {
    if (a & bit) product ^= b;
    b = b & 1 ? (b >>> 1) ^ POLYNOMIAL : b >>> 1;
  }
  return product;
}

/** a divided by x^8: the register before a zero byte. */
export function dividedByByte(a: u32): u32 {
  for (let bit = 0; bit < 8; bit++) a = a & ONE ? ((a ^ POLYNOMIAL) << 1) | 1 : a << 1;
  return a;
}
