// Packet sequence numbers: 24 bits, modulo 2^24. This file alone compares them (IBTA 9.7.2).

export const PSN_MASK: u32 = 0xffffff;

/** Returns the lead of a over b: -2^23 .. 2^23-1, negative when a is older. */
export function psnDiff(a: u32, b: u32): i32 {
  return <i32>((a - b) << 8) >> 8;
}

export function psnAdd(psn: u32, count: u32): u32 {
  return (psn + count) & PSN_MASK;
}

/**
 * Returns the number of packets of a message of `length` bytes; `mtu` is a power of two. An empty message is one
 * packet.
 */
export function packetCount(length: u32, mtu: u32): u32 {
  return length == 0 ? 1 : ((length - 1) >>> ctz<u32>(mtu)) + 1;
}
