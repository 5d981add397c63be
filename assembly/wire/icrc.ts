// Invariant CRC (IBTA 7.8.1, annex 17): CRC-32 of the packet from the IP header to the pad, with eight bytes of ones in
// front (a masked LRH) and the fields that a router may change set to ones:
//   IPv4: type of service, time to live, checksum | IPv6: traffic class, flow label, hop limit
//   UDP: checksum | BTH: the byte of FECN, BECN and reserved bits
// It is the ordinary CRC-32 (0xEDB88320 reflected), stored least significant byte first.
import { CRC_TABLE, ICRC_PAD } from '../limits';
import { BTH_BYTES } from './bth';
import { IPV4_BYTES } from './ipv4';
import { IPV6_BYTES } from './ipv6';
import { UDP_BYTES } from './udp';

export const ICRC_BYTES: u32 = 4;

const POLYNOMIAL: u32 = 0xedb88320;
/** The register after the eight bytes of ones. */
const AFTER_LRH: u32 = 0xdebb20e3;
/** x^(-8·2^k) for k = 0..15: what rolls a register back. Behind the sixteen tables of 1 KiB. */
const INVERSE_POWERS: usize = CRC_TABLE + 16384;
/** x^0 in reflected bit order. */
const ONE: u32 = 0x80000000;

export function initIcrc(): void {
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
  // dividing by x is the register's step run backwards, eight times for x^-8; then square
  let power = ONE;
  for (let bit = 0; bit < 8; bit++) power = power & ONE ? ((power ^ POLYNOMIAL) << 1) | 1 : power << 1;
  for (let k: usize = 0; k < 16; k++) {
    store<u32>(INVERSE_POWERS + (k << 2), power);
    power = multiply(power, power);
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

/** Runs the register over bytes: sixteen at a time while there are so many. */
export function crc(register: u32, ptr: usize, bytes: u32): u32 {
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

/** ICRC of the packet whose IP header is at `ip`, and which ends (pad included) at `end`. */
export function icrcOf(ip: usize, end: usize): u32 {
  let ipBytes = load<u8>(ip) >> 4 == 4 ? IPV4_BYTES : IPV6_BYTES;
  let prefix = ipBytes + UDP_BYTES + BTH_BYTES;
  memory.copy(ICRC_PAD, ip, prefix);
  if (ipBytes == IPV4_BYTES) {
    store<u8>(ICRC_PAD, 0xff, 1);
    store<u8>(ICRC_PAD, 0xff, 8);
    store<u16>(ICRC_PAD, 0xffff, 10);
  } else {
    store<u32>(ICRC_PAD, 0xffffff6f);
    store<u8>(ICRC_PAD, 0xff, 7);
  }
  let udp = ICRC_PAD + ipBytes;
  store<u16>(udp, 0xffff, 6);
  store<u8>(udp + UDP_BYTES, 0xff, 4);
  let register = crc(AFTER_LRH, ICRC_PAD, prefix);
  return ~crc(register, ip + prefix, <u32>(end - ip) - prefix);
}

/** The identification that would make the packet's ICRC `wanted`, where `found` is the ICRC with identification 0;
 * or -1 if none does. The CRC is linear, so the difference of the two, rolled back over all bytes behind the field,
 * must be the field's 16 bits alone: a damaged packet passes only once in 65,536 times. For links that do not see the
 * IPv4 header. In the byte order of the header, as a big endian number. */
export function solveIdentification(ip: usize, end: usize, wanted: u32, found: u32): i32 {
  let bits = multiply(wanted ^ found, inversePower(<u32>(end - ip) - 4));
  if (bits > 0xffff) return -1;
  return <i32>(((bits & 255) << 8) | (bits >>> 8));
}

function inversePower(bytes: u32): u32 {
  let power = ONE;
  for (let k: usize = 0; bytes != 0; k++, bytes >>>= 1)
    if (bytes & 1) power = multiply(power, load<u32>(INVERSE_POWERS + (k << 2)));
  return power;
}

/** a·b modulo the polynomial, both reflected. */
function multiply(a: u32, b: u32): u32 {
  let product: u32 = 0;
  for (let bit = ONE; bit != 0; bit >>>= 1) {
    if (a & bit) product ^= b;
    b = b & 1 ? (b >>> 1) ^ POLYNOMIAL : b >>> 1;
  }
  return product;
}
