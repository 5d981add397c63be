// Invariant CRC (IBTA 7.8.1, annex 17): CRC-32 of the packet from the IP header to the pad, with eight bytes of ones in
// front (a masked LRH) and the fields that a router may change set to ones:
//   IPv4: type of service, time to live, checksum | IPv6: traffic class, flow label, hop limit
//   UDP: checksum | BTH: the byte of FECN, BECN and reserved bits
// It is the ordinary CRC-32 (0xEDB88320 reflected), stored least significant byte first.
import { ICRC_PAD, INVERSE_POWERS } from '../limits';
import { BTH_BYTES } from './bth';
import { put16 } from './bytes';
import { crc, dividedByByte, initCrc, multiply, ONE } from './crc';
import { IPV4_BYTES } from './ipv4';
import { IPV6_BYTES } from './ipv6';
import { UDP_BYTES } from './udp';

export const ICRC_BYTES: u32 = 4;

/** Behind the powers: the last one that was asked for, as its bytes and itself. */
const LAST_POWER: usize = INVERSE_POWERS + 64;
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

/** ICRC of a packet with these headers in front of the BTH at `bth`, and which ends (pad included) at `end`. The lengths in
 * the IP and UDP header and the identification are those of the packet, not what stands there. */
export function icrcOf(ip: usize, bth: usize, end: usize, identification: u32): u32 {
  let isIpv4 = load<u8>(ip) >> 4 == 4;
  let udp = ICRC_PAD + (isIpv4 ? IPV4_BYTES : IPV6_BYTES);
  let transport = <u32>(end - bth) + UDP_BYTES + ICRC_BYTES;
  memory.copy(ICRC_PAD, ip, udp + UDP_BYTES - ICRC_PAD);
  if (isIpv4) {
    store<u8>(ICRC_PAD, 0xff, 1);
    put16(ICRC_PAD + 2, transport + IPV4_BYTES);
    put16(ICRC_PAD + 4, identification);
    store<u8>(ICRC_PAD, 0xff, 8);
    store<u16>(ICRC_PAD, 0xffff, 10);
  } else {
    store<u32>(ICRC_PAD, 0xffffff6f);
    put16(ICRC_PAD + 4, transport);
    store<u8>(ICRC_PAD, 0xff, 7);
  }
  put16(udp + 4, transport);
  store<u16>(udp, 0xffff, 6);
  memory.copy(udp + UDP_BYTES, bth, BTH_BYTES);
  store<u8>(udp + UDP_BYTES, 0xff, 4);
  let register = crc(AFTER_LRH, ICRC_PAD, <u32>(udp - ICRC_PAD) + UDP_BYTES + BTH_BYTES);
  return ~crc(register, bth + BTH_BYTES, <u32>(end - bth) - BTH_BYTES);
}

/** In which bits the identification must differ so that the ICRC over `bytes` bytes from the IP header on differs by
 * `difference`; or -1 if no identification does that. The CRC is linear, so the difference, rolled back over all bytes behind
 * the field, must be the field's 16 bits alone: a damaged packet passes only once in 65,536 times. For links that do not see
 * the IPv4 header. */
export function solveIdentification(bytes: u32, difference: u32): i32 {
  let bits = multiply(difference, inversePower(bytes - 4));
  if (bits > 0xffff) return -1;
  return <i32>(((bits & 255) << 8) | (bits >>> 8));
}

/** x^(-8·bytes). The last one is kept: most packets are as long as the one before. */
function inversePower(bytes: u32): u32 {
  if (load<u32>(LAST_POWER) == bytes) return load<u32>(LAST_POWER, 4);
  let power = ONE;
  for (let k: usize = 0, rest = bytes; rest != 0; k++, rest >>>= 1)
    if (rest & 1) power = multiply(power, load<u32>(INVERSE_POWERS + (k << 2)));
  store<u32>(LAST_POWER, bytes);
  store<u32>(LAST_POWER, power, 4);
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
