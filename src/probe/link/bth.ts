/** The offset of the BTH in a frame, and its destination queue pair. */
import { ETHERNET_BYTES, ETHERTYPE, VLAN_TAG_BYTES } from '../../link/headers.js';
import { ROCE_PORT } from '../packet/frame.js';

/** Bytes from the start of the BTH to its destination queue pair number. */
const DEST_QP_AT = 5;

/** Returns the offset of the BTH of a RoCEv2 frame, or -1 for any other frame. */
export function bthAt(frame: Uint8Array): number {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  if (frame.length < ETHERNET_BYTES) return -1;
  const isTagged = view.getUint16(ETHERNET_BYTES - 2) === ETHERTYPE.VLAN;
  const ip = isTagged ? ETHERNET_BYTES + VLAN_TAG_BYTES : ETHERNET_BYTES;
  if (frame.length < ip + 1) return -1;
  const udp = ip + (view.getUint16(ip - 2) === ETHERTYPE.IPV4 ? (view.getUint8(ip) & 15) * 4 : 40);
  const bth = udp + 8;
  return frame.length < bth + 12 || view.getUint16(udp + 2) !== ROCE_PORT ? -1 : bth;
}

/** Returns the destination queue pair number of a frame, or -1. @param bth offset from `bthAt` */
export function destQpAt(frame: Uint8Array, bth: number): number {
  if (bth < 0) return -1;
  const at = bth + DEST_QP_AT;
  return ((frame[at] as number) << 16) | ((frame[at + 1] as number) << 8) | (frame[at + 2] as number);
}
