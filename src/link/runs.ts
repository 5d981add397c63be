/** Runs and super-packets of the frame contract (link.ts), for links that put them together or take them apart in JavaScript. */
import { RX_SEGMENT_SHIFT, TX_CONTINUES_RUN } from './link.js';
import type { RingView } from './ring.js';

const ETHERTYPE_AT = 12;
const ETHERTYPE_VLAN = 0x8100;
const ETHERTYPE_IPV6 = 0x86dd;

/** Frames of the run that begins at a cursor of the transmit ring; at most `filled` are there. */
export function runLength(tx: RingView, cursor: number, filled: number): number {
  let count = 1;
  while (count < filled && (tx.options(cursor + count) & TX_CONTINUES_RUN) !== 0) count++;
  return count;
}

/** Bytes in front of the payload of a UDP datagram, in a frame that has IPv4 without options or IPv6 in it. */
export function udpPayloadOffset(memory: Uint8Array, addr: number): number {
  const type = (at: number) => ((memory[addr + at] as number) << 8) | (memory[addr + at + 1] as number);
  const tag = type(ETHERTYPE_AT) === ETHERTYPE_VLAN ? 4 : 0;
  return ETHERTYPE_AT + tag + 2 + (type(ETHERTYPE_AT + tag) === ETHERTYPE_IPV6 ? 40 : 20) + 8;
}

/** Bytes of each packet of a received super-packet, behind the headers; 0 when the descriptor is of a single packet. */
export function segmentBytes(options: number): number {
  return options >>> RX_SEGMENT_SHIFT;
}
