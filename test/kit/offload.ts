/**
 * The ICRC offload of a link (LinkFeatures.icrcOffload in src/link/link.ts), with the second CRC. Nothing comes from
 * src.
 */

import { register } from '../../src/probe/packet/icrc.js';
import { headerBytes } from './gsobursts.js';

export const ICRC_OFFLOAD = 2;
const ICRC_SHIFT = 17;
const SEGMENT_SHIFT = 17;
const ICRC_FOLDED = 0x8000;
export const FETCH_SPAN = 0x8000;
const BTH = 12;
const ICRC = 4;

/** Returns the number of bytes before the ICRC that the link covers, for a number of bytes of UDP payload. */
export function span(payloadBytes: number): number {
  const bytes = payloadBytes - BTH - ICRC;
  return bytes < 256 ? 0 : Math.min(4096, 2 ** Math.floor(Math.log2(bytes)));
}

/** Returns the bytes at a place (assembly/host/place.ts). */
export type BytesAt = (place: number, bytes: number) => Uint8Array;

/**
 * Completes the ICRC of a frame that a card has sent, and fetches the span if it lies elsewhere.
 * @param bytesAt returns the bytes at a place
 * @returns the new options of its descriptor
 */
export function complete(frame: Uint8Array, options: number, bytesAt: BytesAt = () => new Uint8Array()): number {
  const bytes = options >>> ICRC_SHIFT;
  if (bytes === 0) return options;
  const expected = span(frame.length - headerBytes(frame));
  if (bytes !== expected) throw new Error(`the card left ${bytes} bytes of the ICRC to its link, must be ${expected}`);
  if (options & FETCH_SPAN) {
    const place = frame.length - ICRC - bytes;
    const address = Number(new DataView(frame.buffer, frame.byteOffset + place).getBigUint64(0, true));
    const fetched = bytesAt(address, bytes);
    if (fetched.length !== bytes) throw new Error(`the span of ${bytes} bytes is at ${address}`);
    frame.set(fetched, place);
  }
  const end = new DataView(frame.buffer, frame.byteOffset + frame.length - ICRC);
  end.setUint32(0, ~register(end.getUint32(0, true), frame.subarray(-ICRC - bytes, -ICRC)), true);
  return options & ((1 << ICRC_SHIFT) - 1) & ~FETCH_SPAN;
}

/** Does the link's part of the ICRC for a received frame or super-packet. @returns the new options of its descriptor */
export function fold(frame: Uint8Array, options: number): number {
  if (options & ICRC_FOLDED) return options;
  const segment = options >>> SEGMENT_SHIFT || frame.length;
  for (let at = headerBytes(frame); at < frame.length; at += segment) {
    const packet = frame.subarray(at, at + segment);
    const bytes = span(packet.length);
    if (bytes === 0) continue;
    const end = new DataView(packet.buffer, packet.byteOffset + packet.length - ICRC);
    end.setUint32(0, end.getUint32(0, true) ^ register(0, packet.subarray(-ICRC - bytes, -ICRC)), true);
  }
  return options | ICRC_FOLDED;
}
