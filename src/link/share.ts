/** The share of a frame that its link fetches (TX_FETCH_SHARE), for code that reads the transmit ring in JavaScript. */
import { TX_FETCH_SHARE, TX_ICRC_SHIFT } from './frames.js';

const ICRC_BYTES = 4;

/** The place of the link's share in a frame, and of its bytes in memory. */
export interface Share {
  /** Its offset in the frame. */
  readonly offset: number;
  /** The offset of its bytes in the card's memory. */
  readonly address: number;
}

/** Returns the share of a frame at `addr` that is elsewhere in the memory; undefined if the frame is whole. */
export function shareElsewhere(memory: Uint8Array, addr: number, length: number, options: number): Share | undefined {
  if ((options & TX_FETCH_SHARE) === 0) return undefined;
  const offset = length - ICRC_BYTES - (options >>> TX_ICRC_SHIFT);
  const place = new DataView(memory.buffer, memory.byteOffset + addr + offset);
  return { offset, address: Number(place.getBigUint64(0, true)) };
}
