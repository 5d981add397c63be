// CRC-32 (0xEDB88320 reflected) of a run of bytes, as a register without the customary complements.
//
// Short runs go through sixteen tables, a vector at a time. Long ones are folded first: modulo the polynomial, a byte weighs
// the same as itself 145, 183, 211 and 300 bytes further on (a multiple of the polynomial with only five terms, raised to the
// eighth power). So a run is reduced to its last 300 bytes with nothing but XORs of whole vectors, those to 137 bytes with a
// shorter multiple of seven terms, and those word by word with the first multiple again, now in bits. About four times as
// fast as the tables.
import { CRC_SCRATCH, CRC_TABLE } from '../limits';

const POLYNOMIAL: u32 = 0xedb88320;
/** Below this the tables are faster. */
const SHORTEST_FOLD: u32 = 384;
/** Longest run that one fold takes: what the scratch holds. */
const LONGEST_FOLD: u32 = 8192;

/** Results of the three stages; in front of each as many zeroes as its taps reach back. */
const FIRST: usize = CRC_SCRATCH + 320;
const SECOND: usize = FIRST + LONGEST_FOLD + 320 + 160;
const THIRD: usize = SECOND + 512;

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

/** The register after `bytes` bytes at `ptr`. Up to 15 bytes behind them are read, but do not count. */
export function crc(register: u32, ptr: usize, bytes: u32): u32 {
  while (bytes >= SHORTEST_FOLD) {
    let part = min(bytes, LONGEST_FOLD);
    register = fold(register, ptr, part);
    ptr += part;
    bytes -= part;
  }
  return byTables(register, ptr, bytes);
}

function byTables(register: u32, ptr: usize, bytes: u32): u32 {
  let end = ptr + (bytes & ~15);
  for (; ptr < end; ptr += 16)
    register =
      four(load<u32>(ptr) ^ register, 12) ^
      four(load<u32>(ptr, 4), 8) ^
      four(load<u32>(ptr, 8), 4) ^
      four(load<u32>(ptr, 12), 0);
  end = ptr + (bytes & 15);
  for (; ptr < end; ptr++) register = entry(0, (register ^ <u32>load<u8>(ptr)) & 255) ^ (register >>> 8);
  return register;
}

/** What the first multiple carries to `at` from what lies behind. */
function far(at: usize): v128 {
  return v128.xor(
    v128.xor(v128.load(at - 145), v128.load(at - 183)),
    v128.xor(v128.load(at - 211), v128.load(at - 300)),
  );
}

/** The same for the multiple with seven terms. */
function near(at: usize): v128 {
  return v128.xor(
    v128.xor(v128.xor(v128.load(at - 53), v128.load(at - 57)), v128.xor(v128.load(at - 67), v128.load(at - 108))),
    v128.xor(v128.load(at - 129), v128.load(at - 137)),
  );
}

/** From SHORTEST_FOLD to LONGEST_FOLD bytes. */
function fold(register: u32, ptr: usize, bytes: u32): u32 {
  let folded = (bytes - 300) & ~15;
  let end = FIRST + folded;
  let source = ptr - FIRST;
  // the register is what the first four bytes would have been XORed with
  v128.store(FIRST, v128.xor(v128.load(ptr), i32x4.replace_lane(i32x4.splat(0), 0, register)));
  let at: usize = FIRST + 16;
  for (; at + 64 <= end; at += 64) {
    v128.store(at, v128.xor(v128.load(source + at), far(at)));
    v128.store(at, v128.xor(v128.load(source + at, 16), far(at + 16)), 16);
    v128.store(at, v128.xor(v128.load(source + at, 32), far(at + 32)), 32);
    v128.store(at, v128.xor(v128.load(source + at, 48), far(at + 48)), 48);
  }
  for (; at < end; at += 16) v128.store(at, v128.xor(v128.load(source + at), far(at)));
  // behind the end nothing has been folded, and must not be taken for it
  memory.fill(end, 0, 320);
  return foldTail(end, source, bytes - folded);
}

/** The last 300 to 315 bytes, to which everything before has been carried. */
function foldTail(from: usize, source: usize, bytes: u32): u32 {
  let folded = (bytes - 137) & ~15;
  let end = SECOND + folded;
  let first = from - SECOND;
  let at: usize = SECOND;
  for (; at < end; at += 16) {
    let x = at + first;
    v128.store(at, v128.xor(v128.xor(v128.load(source + x), far(x)), near(at)));
  }
  memory.fill(end, 0, 160);
  let rest = bytes - folded;
  for (let i: usize = 0; i < rest; i += 16) {
    let x = at + i + first;
    v128.store(THIRD + i, v128.xor(v128.xor(v128.load(source + x), far(x)), near(at + i)));
  }
  return foldWords(THIRD, rest);
}

/** 137 to 152 bytes, eight at a time down to about forty: a bit weighs the same as itself 145, 183, 211 and 300 bits
 * further on. What is carried that far is kept in the five words that it can reach. */
function foldWords(ptr: usize, bytes: u32): u32 {
  let a: u64 = 0;
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
  store<u64>(ptr, load<u64>(ptr) ^ a);
  store<u64>(ptr, load<u64>(ptr, 8) ^ b, 8);
  store<u64>(ptr, load<u64>(ptr, 16) ^ c, 16);
  store<u64>(ptr, load<u64>(ptr, 24) ^ d, 24);
  store<u64>(ptr, load<u64>(ptr, 32) ^ e, 32);
  return byTables(0, ptr, <u32>(end - ptr));
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
