/**
 * GSO bursts and super-packets as the frame contract (link.ts) describes them, for code that reads them in JavaScript.
 */

import { RX_SEGMENT_SHIFT, TX_CONTINUES_BURST } from './frames.js';
import { ETHERNET_BYTES, ETHERTYPE, VLAN_TAG_BYTES } from './headers.js';
import type { RingView } from './ring.js';

const ETHERTYPE_AT = ETHERNET_BYTES - 2;

/** Returns the number of frames of the GSO burst that starts at a cursor of the transmit ring, at most `filled`. */
export function burstLength(tx: RingView, cursor: number, filled: number): number {
  let count = 1;
  while (count < filled && (tx.options(cursor + count) & TX_CONTINUES_BURST) !== 0) count++;
  return count;
}

/** Returns the bytes in front of the UDP payload of a frame, which carries IPv4 without options or IPv6. */
export function udpPayloadOffset(memory: Uint8Array, addr: number): number {
  const type = (at: number) => ((memory[addr + at] as number) << 8) | (memory[addr + at + 1] as number);
  const tag = type(ETHERTYPE_AT) === ETHERTYPE.VLAN ? VLAN_TAG_BYTES : 0;
  return ETHERTYPE_AT + tag + 2 + (type(ETHERTYPE_AT + tag) === ETHERTYPE.IPV6 ? 40 : 20) + 8;
}

/** Returns the UDP payload bytes of each packet of a received super-packet; 0 if the descriptor is a single packet. */
export function segmentBytes(options: number): number {
  return options >>> RX_SEGMENT_SHIFT;
}
