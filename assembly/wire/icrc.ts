// Invariant CRC (IBTA 7.8.1, annex 17): CRC-32 of the packet from the IP header to the pad, with eight bytes of ones in
// front (a masked LRH) and the fields that a router may change set to ones:
//   IPv4: type of service, time to live, checksum | IPv6: traffic class, flow label, hop limit
//   UDP: checksum | BTH: the byte of FECN, BECN and reserved bits
// It is the ordinary CRC-32 (0xEDB88320 reflected), stored least significant byte first.
import { ID_TERMS, INVERSE_POWERS, SHIFT_TABLES } from '../memorymap';
import { BTH_BYTES } from './bth';
import { crc, crcOfFour, crcOfThree, dividedByByte, initCrc, multiply, ONE } from './crc';
import { IPV4_BYTES } from './ipv4';

export const ICRC_BYTES: u32 = 4;

/** Behind the powers: the last power that was computed, as its number of bytes and its value. */
const LAST_POWER: usize = INVERSE_POWERS + 64;
/** An ICRC span, whose CRC the link computes, has a power of two of bytes between these. */
const SMALLEST_SPAN: u32 = 256;
const LARGEST_SPAN: u32 = 4096;
/** The register after the eight bytes of ones. */
const AFTER_LRH: u32 = 0xdebb20e3;

/**
 * Fills the tables: the powers x^(-8·2^k), k = 0..15, which roll a register back; the terms of identifications; the
 * shifts.
 */
export function initIcrc(): void {
  initCrc();
  initShifts();
  let power = dividedByByte(ONE);
  for (let k: usize = 0; k < 16; k++) {
    store<u32>(INVERSE_POWERS + (k << 2), power);
    power = multiply(power, power);
  }
  for (let byte: u32 = 0; byte < 256; byte++) {
    // the lower byte is the second byte of the field
    store<u32>(ID_TERMS + ((<usize>byte) << 2), crcOfThree(crcOfFour(0, 0, byte << 8, 0, 0), 0, 0, 0));
    store<u32>(ID_TERMS + 1024 + ((<usize>byte) << 2), crcOfThree(crcOfFour(0, 0, byte, 0, 0), 0, 0, 0));
  }
}

/**
 * Returns the register in front of the BTH: behind these headers, for `transport` bytes from the UDP header on and
 * identification 0, whatever the header contains.
 */
export function headerRegister(ip: usize, transport: u32): u32 {
  return load<u8>(ip) >> 4 == 4 ? overIpv4(ip, transport) : overIpv6(ip, transport);
}

/** Returns the term by which an IPv4 identification changes that register. */
export function idTerm(identification: u32): u32 {
  let low = load<u32>(ID_TERMS + ((<usize>(identification & 255)) << 2));
  return low ^ load<u32>(ID_TERMS + 1024 + ((<usize>(identification >>> 8)) << 2));
}

/**
 * Fills the tables of each byte of a register followed by `span` zero bytes. The entry of a byte is the XOR of those
 * of its bits.
 */
function initShifts(): void {
  // x^(8·256), by squaring x^8
  let power = ONE >>> 8;
  for (let k = 0; k < 8; k++) power = multiply(power, power);
  for (let span = SMALLEST_SPAN; span <= LARGEST_SPAN; span <<= 1) {
    let table = shiftTable(span);
    for (let at: u32 = 0; at < 1024; at++) {
      let byte = at & 255;
      let others = byte & (byte - 1);
      let entry =
        others == 0
          ? multiply(byte << ((at >>> 8) << 3), power)
          : shiftEntry(table, at - byte + others) ^ shiftEntry(table, at - others);
      store<u32>(table + ((<usize>at) << 2), entry);
    }
    power = multiply(power, power);
  }
}

function shiftTable(span: u32): usize {
  return SHIFT_TABLES + ((<usize>(ctz(span) - ctz(SMALLEST_SPAN))) << 12);
}

/** Returns an entry: `at` is a byte of the register, plus 256 for each byte below it. */
function shiftEntry(table: usize, at: u32): u32 {
  return load<u32>(table + ((<usize>at) << 2));
}

/** Returns the register after `span` zero bytes. */
function shifted(register: u32, span: u32): u32 {
  let table = shiftTable(span);
  return (
    shiftEntry(table, register & 255) ^
    shiftEntry(table, 256 + ((register >>> 8) & 255)) ^
    shiftEntry(table, 512 + ((register >>> 16) & 255)) ^
    shiftEntry(table, 768 + (register >>> 24))
  );
}

/**
 * Returns how many of a packet's `bytes` behind the BTH, pad included, are left to a link with ICRC_OFFLOAD: the last
 * ones. 0 = too few.
 */
export function icrcSpan(bytes: u32): u32 {
  return bytes < SMALLEST_SPAN ? 0 : min(LARGEST_SPAN, (<u32>1) << (31 - clz(bytes)));
}

/**
 * Returns the register in front of the ICRC span of a packet that ends (pad included) at `end`, from the register in
 * front of the BTH.
 */
export function registerBefore(span: u32, register: u32, bth: usize, end: usize): u32 {
  register = crcOfThree(register, load<u32>(bth), load<u32>(bth, 4) | 0xff, load<u32>(bth, 8));
  return crc(register, bth + BTH_BYTES, <u32>(end - bth) - BTH_BYTES - span);
}

/**
 * Returns the ICRC of a packet XORed with the CRC of the ICRC span, which the link has XORed in
 * (RxOption.ICRC_FOLDED).
 */
export function foldedIcrc(register: u32, bth: usize, end: usize): u32 {
  let span = icrcSpan(<u32>(end - bth) - BTH_BYTES);
  register = registerBefore(span, register, bth, end);
  return ~(span == 0 ? register : shifted(register, span));
}

/** Returns the ICRC of a packet that ends (pad included) at `end`, from the register in front of its BTH. */
export function icrcFrom(register: u32, bth: usize, end: usize): u32 {
  return ~registerBefore(0, register, bth, end);
}

/** Returns the register after IPv4 and UDP header. */
function overIpv4(ip: usize, transport: u32): u32 {
  let register = crcOfFour(
    AFTER_LRH,
    load<u8>(ip) | 0xff00 | high16(transport + IPV4_BYTES),
    load<u32>(ip, 4) & 0xffff0000,
    load<u32>(ip, 8) | 0xffff00ff,
    load<u32>(ip, 12),
  );
  return crcOfThree(register, load<u32>(ip, 16), load<u32>(ip, 20), (high16(transport) >>> 16) | 0xffff0000);
}

/** Returns the register after IPv6 and UDP header. */
function overIpv6(ip: usize, transport: u32): u32 {
  let register = crcOfFour(
    AFTER_LRH,
    0xffffff6f,
    (high16(transport) >>> 16) | (load<u32>(ip, 4) & 0xff0000) | 0xff000000,
    load<u32>(ip, 8),
    load<u32>(ip, 12),
  );
  register = crcOfFour(register, load<u32>(ip, 16), load<u32>(ip, 20), load<u32>(ip, 24), load<u32>(ip, 28));
  let length = (high16(transport) >>> 16) | 0xffff0000;
  return crcOfFour(register, load<u32>(ip, 32), load<u32>(ip, 36), load<u32>(ip, 40), length);
}

/** Returns the upper half of a word whose last two bytes in memory are this number in network byte order. */
function high16(value: u32): u32 {
  return (<u32>bswap<u16>(<u16>value)) << 16;
}

/**
 * Returns the bits in which the identification must differ so that the ICRC over `bytes` bytes from the IP header on
 * differs by `difference`; -1 if there are none. The CRC is linear: the difference, rolled back over all bytes behind
 * the field, must lie within the field's 16 bits. So one corrupted packet in 65,536 goes undetected. For links that do
 * not see the IPv4 header.
 */
export function solveIdentification(bytes: u32, difference: u32): i32 {
  let bits = multiply(difference, inversePower(bytes - 4));
  if (bits > 0xffff) return -1;
  return <i32>(((bits & 255) << 8) | (bits >>> 8));
}

/** Returns x^(-8·bytes). The last value is kept, because most packets are as long as the one before. */
function inversePower(bytes: u32): u32 {
  if (load<u32>(LAST_POWER) == bytes) return load<u32>(LAST_POWER, 4);
  let power = ONE;
  for (let k: usize = 0, rest = bytes; rest != 0; k++, rest >>>= 1)
    if (rest & 1) power = multiply(power, load<u32>(INVERSE_POWERS + (k << 2)));
  store<u32>(LAST_POWER, bytes);
  store<u32>(LAST_POWER, power, 4);
  return power;
}

/** Returns the ICRC that rxe computes for a FLUSH (Quirk.RXE_FLUSH_ICRC), from the right one. */
export function rxeFlushIcrc(right: u32, bth: usize, end: usize): u32 {
  return ~crc(~right, bth, <u32>(end - bth));
}

/** Replaces the ICRC at `end` by the one that rxe computes for a FLUSH. */
export function writeRxeFlushIcrc(bth: usize, end: usize): void {
  store<u32>(end, rxeFlushIcrc(load<u32>(end), bth, end));
}
