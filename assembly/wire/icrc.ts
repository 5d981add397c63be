// Invariant CRC (IBTA 7.8.1, annex 17): CRC-32 of the packet from the IP header to the pad, with eight bytes of ones in
// front (a masked LRH) and the fields that a router may change set to ones:
//   IPv4: type of service, time to live, checksum | IPv6: traffic class, flow label, hop limit
//   UDP: checksum | BTH: the byte of FECN, BECN and reserved bits
// It is the ordinary CRC-32 (0xEDB88320 reflected), stored least significant byte first.
import { ICRC_PAD, INVERSE_POWERS } from '../limits';
import { BTH_BYTES } from './bth';
import { crc, dividedByByte, initCrc, multiply, ONE } from './crc';
import { IPV4_BYTES } from './ipv4';
import { IPV6_BYTES } from './ipv6';
import { UDP_BYTES } from './udp';

export const ICRC_BYTES: u32 = 4;

/** The register after the eight bytes of ones. */
const AFTER_LRH: u32 = 0xdebb20e3;

/** The powers x^(-8·2^k), k = 0..15: what rolls a register back. */
export function initIcrc(): void {
  initCrc();
  let power = dividedByByte(ONE);
  for (let k: usize = 0; k < 16; k++) {
    store<u32>(INVERSE_POWERS + (k << 2), power);
    power = multiply(power, power);
  }
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

/** The identification that would make the ICRC over `bytes` bytes from the IP header on `wanted`, where `found` is the ICRC with identification 0;
 * or -1 if none does. The CRC is linear, so the difference of the two, rolled back over all bytes behind the field,
 * must be the field's 16 bits alone: a damaged packet passes only once in 65,536 times. For links that do not see the
 * IPv4 header. In the byte order of the header, as a big endian number. */
export function solveIdentification(bytes: u32, wanted: u32, found: u32): i32 {
  let bits = multiply(wanted ^ found, inversePower(bytes - 4));
  if (bits > 0xffff) return -1;
  return <i32>(((bits & 255) << 8) | (bits >>> 8));
}

function inversePower(bytes: u32): u32 {
  let power = ONE;
  for (let k: usize = 0; bytes != 0; k++, bytes >>>= 1)
    if (bytes & 1) power = multiply(power, load<u32>(INVERSE_POWERS + (k << 2)));
  return power;
}

/** The ICRC that rxe gives to a FLUSH (Quirk.RXE_FLUSH_ICRC), from the right one. */
export function rxeFlushIcrc(right: u32, bth: usize, end: usize): u32 {
  return ~crc(~right, bth, <u32>(end - bth));
}

/** Replaces the ICRC at `end` by the one that rxe gives to a FLUSH. */
export function writeRxeFlushIcrc(bth: usize, end: usize): void {
  store<u32>(end, rxeFlushIcrc(load<u32>(end), bth, end));
}
