/** The RoCEv2 packet of a captured frame. */
import { decodePacket, type PacketView } from '../packet/decode.js';
import type { CapturedPacket } from './captured.js';
import { unwrap } from './unwrap.js';

const ETHERNET = 1;

/** A RoCEv2 packet, and what is around it. */
export interface CapturedRoce extends PacketView {
  /** Layers around the packet, from the outside, as text: Ethernet, tags, tunnels. */
  readonly outer: readonly string[];
  /** The packet from its IP header on, without its payload. */
  readonly headers: Uint8Array;
}

/** Returns the RoCEv2 packet of a frame; undefined if it has none, or is cut before the end of its BTH. */
export function decodeCaptured({
  data,
  linkType = ETHERNET,
}: Pick<CapturedPacket, 'data' | 'linkType'>): CapturedRoce | undefined {
  const found = unwrap(data, linkType);
  if (found === undefined) return undefined;
  try {
    const view = decodePacket(found.packet);
    return { ...view, outer: found.outer, headers: found.packet.subarray(0, view.headerBytes) };
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
