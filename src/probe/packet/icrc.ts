/** The invariant CRC of RoCEv2, a second implementation from the rule (IBTA annex A17.3.3): by table, byte by byte. */

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  return crc >>> 0;
});

/** Returns the CRC register after some bytes, without complements. */
export function register(crc: number, bytes: Uint8Array): number {
  for (let i = 0; i < bytes.length; i++) crc = (TABLE[(crc ^ (bytes[i] as number)) & 255] as number) ^ (crc >>> 8);
  return crc >>> 0;
}

/** Returns the CRC-32 of Ethernet and zlib. */
export function crc32(bytes: Uint8Array): number {
  return ~register(0xffffffff, bytes) >>> 0;
}

/**
 * @param packet from the first byte of the IP header to the last pad byte
 * @returns the four bytes of the wire, read big-endian, so that they print in the order of the wire
 */
export function icrc(packet: Uint8Array): number {
  const masked = new Uint8Array(8 + packet.length);
  masked.fill(0xff, 0, 8); // in place of the LRH, which RoCEv2 does not have
  masked.set(packet, 8);
  const ip = masked.subarray(8);
  const v4 = (ip[0] as number) >> 4 === 4;
  const udp = v4 ? ((ip[0] as number) & 15) * 4 : 40;
  if (v4) {
    for (const changing of [1, 8, 10, 11]) ip[changing] = 0xff; // TOS, TTL, header checksum
  } else {
    ip[0] = 0x6f;
    for (const changing of [1, 2, 3, 7]) ip[changing] = 0xff; // traffic class, flow label, hop limit
  }
  for (const changing of [udp + 6, udp + 7, udp + 12]) ip[changing] = 0xff; // UDP checksum; FECN, BECN, reserved
  return asOnWire(crc32(masked));
}

/**
 * Returns the wrong ICRC of a FLUSH by Linux rxe 6.12: it covers the bytes after the UDP header a second time,
 * unmasked.
 */
export function rxeFlushIcrc(packet: Uint8Array): number {
  const right = icrc(packet);
  const udp = (packet[0] as number) >> 4 === 4 ? 20 : 40;
  // continues from the register after the first CRC
  return asOnWire(~register(~asOnWire(right) >>> 0, packet.subarray(udp + 8)) >>> 0);
}

/** Returns a register as it is on the wire: its four bytes, read big-endian. */
export function asOnWire(crc: number): number {
  return (((crc & 0xff) << 24) | ((crc & 0xff00) << 8) | ((crc >>> 8) & 0xff00) | (crc >>> 24)) >>> 0;
}
