/** The ICRC span of a frame, which its link fetches (TX_FETCH_SPAN), for readers of the ring in JavaScript. */
import { TX_FETCH_SPAN, TX_ICRC_SHIFT } from './frames.js';

const ICRC_BYTES = 4;

/** The place of the ICRC span in a frame, and of its bytes in memory. */
export interface IcrcSpan {
  /** Its offset in the frame. */
  readonly offset: number;
  /** The place of its bytes: an offset in the card's memory, or in another region (assembly/host/place.ts). */
  readonly address: number;
}

/** Returns the ICRC span of a frame at `addr` that is elsewhere; undefined if the frame is whole. */
export function spanElsewhere(memory: Uint8Array, addr: number, length: number, options: number): IcrcSpan | undefined {
  if ((options & TX_FETCH_SPAN) === 0) return undefined;
  const offset = length - ICRC_BYTES - (options >>> TX_ICRC_SHIFT);
  const place = new DataView(memory.buffer, memory.byteOffset + addr + offset);
  return { offset, address: Number(place.getBigUint64(0, true)) };
}
