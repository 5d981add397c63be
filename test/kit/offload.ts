/** A link's part in the ICRC (LinkFeatures.icrcOffload in src/link/link.ts), by the second CRC: nothing here comes from src. */
import { register } from './icrc.js';
import { headerBytes } from './runs.js';

export const ICRC_OFFLOAD = 2;
const ICRC_SHIFT = 17;
const SEGMENT_SHIFT = 17;
const ICRC_FOLDED = 0x8000;
const BTH = 12;
const ICRC = 4;

/** Of so many bytes of UDP payload the last that are the link's, in front of the ICRC. */
export function share(payloadBytes: number): number {
  const bytes = payloadBytes - BTH - ICRC;
  return bytes < 256 ? 0 : Math.min(4096, 2 ** Math.floor(Math.log2(bytes)));
}

/** Completes a frame that a card has sent. @returns the options of its descriptor from then on */
export function complete(frame: Uint8Array, options: number): number {
  const bytes = options >>> ICRC_SHIFT;
  if (bytes === 0) return options;
  if (bytes !== share(frame.length - headerBytes(frame))) throw new Error(`a card has left ${bytes} bytes to its link`);
  const end = new DataView(frame.buffer, frame.byteOffset + frame.length - ICRC);
  end.setUint32(0, ~register(end.getUint32(0, true), frame.subarray(-ICRC - bytes, -ICRC)), true);
  return options & ((1 << ICRC_SHIFT) - 1);
}

/** Does the link's part for a frame, or a super-packet, that a card is to receive. @returns the options of its descriptor from then on */
export function fold(frame: Uint8Array, options: number): number {
  if (options & ICRC_FOLDED) return options;
  const segment = options >>> SEGMENT_SHIFT || frame.length;
  for (let at = headerBytes(frame); at < frame.length; at += segment) {
    const packet = frame.subarray(at, at + segment);
    const bytes = share(packet.length);
    if (bytes === 0) continue;
    const end = new DataView(packet.buffer, packet.byteOffset + packet.length - ICRC);
    end.setUint32(0, end.getUint32(0, true) ^ register(0, packet.subarray(-ICRC - bytes, -ICRC)), true);
  }
  return options | ICRC_FOLDED;
}
