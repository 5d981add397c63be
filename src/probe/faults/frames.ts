/** Received frames as single, whole packets: links join packets, compute ICRCs in part, and hide identifications. */
import { RX_ICRC_FOLDED, RX_IP_ID_UNKNOWN } from '../../link/frames.js';
import { segmentBytes, udpPayloadOffset } from '../../link/gso.js';
import { ETHERNET_BYTES } from '../../link/headers.js';
import { checksum16 } from '../packet/encode.js';
import { asOnWire, icrc, register } from '../packet/icrc.js';

/** A frame with the options of its descriptor. */
export interface ReceivedFrame {
  readonly frame: Uint8Array;
  readonly options: number;
}

const UDP_BYTES = 8;
const BTH_BYTES = 12;
const ICRC_BYTES = 4;
/** Bytes of an ICRC span (LinkFeatures.icrcOffload). */
const SPAN = { min: 256, max: 4096 };

const viewOf = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);

/** Returns the packets of a received frame, each in a frame of its own, with the ICRC that was on the wire. */
export function singlePackets(frame: Uint8Array, options: number): ReceivedFrame[] {
  const isFolded = (options & RX_ICRC_FOLDED) !== 0;
  const segment = segmentBytes(options);
  if (segment === 0 && !isFolded) return [{ frame, options }];
  const udpPayload = udpPayloadOffset(frame, 0);
  const frames = segment === 0 ? [frame] : split(frame, udpPayload, segment);
  if (isFolded) for (const each of frames) unfold(each, udpPayload);
  if (segment > 0 && ipAt(udpPayload).version === 4)
    for (const [k, each] of frames.entries()) identify(each, udpPayload, k);
  return frames.map((each) => ({ frame: each, options: options & RX_IP_ID_UNKNOWN }));
}

/** Returns the start of the IP header and its version: only behind an IPv6 header is there so much in front. */
function ipAt(udpPayload: number): { readonly ip: number; readonly version: 4 | 6 } {
  const v6 = udpPayload - UDP_BYTES - 40;
  return v6 >= ETHERNET_BYTES ? { ip: v6, version: 6 } : { ip: udpPayload - UDP_BYTES - 20, version: 4 };
}

/** Returns the end of the IP packet, behind which an Ethernet trailer may come. */
function packetEnd(frame: Uint8Array, udpPayload: number): number {
  const { ip, version } = ipAt(udpPayload);
  return version === 6 ? ip + 40 + viewOf(frame).getUint16(ip + 4) : ip + viewOf(frame).getUint16(ip + 2);
}

/** Gives each packet of a super-packet its headers, with the right lengths. */
function split(frame: Uint8Array, udpPayload: number, segment: number): Uint8Array[] {
  const headers = frame.subarray(0, udpPayload);
  const { ip, version } = ipAt(udpPayload);
  const frames: Uint8Array[] = [];
  for (let at = udpPayload; at < frame.length; at += segment) {
    const payload = frame.subarray(at, Math.min(at + segment, frame.length));
    const single = new Uint8Array(headers.length + payload.length);
    single.set(headers);
    single.set(payload, headers.length);
    const view = viewOf(single);
    view.setUint16(udpPayload - 4, UDP_BYTES + payload.length);
    // the checksum of the super-packet is not that of its packets; the ICRC is
    view.setUint16(udpPayload - 2, 0);
    if (version === 6) view.setUint16(ip + 4, UDP_BYTES + payload.length);
    else view.setUint16(ip + 2, single.length - ip);
    frames.push(single);
  }
  return frames;
}

/** Undoes the offload of a packet's ICRC. */
function unfold(frame: Uint8Array, udpPayload: number): void {
  const end = packetEnd(frame, udpPayload) - ICRC_BYTES;
  const behindBth = end - udpPayload - BTH_BYTES;
  if (behindBth < SPAN.min || end + ICRC_BYTES > frame.length) return;
  const span = Math.min(2 ** Math.floor(Math.log2(behindBth)), SPAN.max);
  const view = viewOf(frame);
  view.setUint32(end, (view.getUint32(end, true) ^ register(0, frame.subarray(end - span, end))) >>> 0, true);
}

/** Writes the IPv4 identification of packet k of a super-packet, whose headers have that of the first, by the ICRC. */
function identify(frame: Uint8Array, udpPayload: number, k: number): void {
  const { ip } = ipAt(udpPayload);
  const view = viewOf(frame);
  const first = view.getUint16(ip + 4);
  view.setUint16(ip + 4, (first + k) & 0xffff);
  if (icrc(frame.subarray(ip, -ICRC_BYTES)) !== view.getUint32(frame.length - ICRC_BYTES))
    view.setUint16(ip + 4, first);
  writeChecksum(view, ip);
}

/** Writes the checksum of an IPv4 header without options. */
function writeChecksum(view: DataView, ip: number): void {
  view.setUint16(ip + 10, 0);
  view.setUint16(ip + 10, checksum16(new Uint8Array(view.buffer, view.byteOffset + ip, 20)));
}

/**
 * Returns a frame with the IPv4 identification that makes its ICRC right: the kernel hides it from UDP sockets, which
 * show 0. The frame itself if its ICRC is right, or if no identification makes it right.
 */
export function withIdentification(frame: Uint8Array): Uint8Array {
  const udpPayload = udpPayloadOffset(frame, 0);
  if (frame.length < udpPayload + BTH_BYTES + ICRC_BYTES || ipAt(udpPayload).version !== 4) return frame;
  const { ip } = ipAt(udpPayload);
  const end = packetEnd(frame, udpPayload) - ICRC_BYTES;
  if (end <= udpPayload || end + ICRC_BYTES > frame.length) return frame;
  const view = viewOf(frame);
  const wanted = (view.getUint32(end) ^ icrc(frame.subarray(ip, end))) >>> 0;
  if (wanted === 0) return frame;
  const bits = solveIdentification(wanted, end - ip - 6);
  if (bits === undefined) return frame;
  const solved = frame.slice();
  const solvedView = viewOf(solved);
  solvedView.setUint16(ip + 4, view.getUint16(ip + 4) ^ bits);
  writeChecksum(solvedView, ip);
  return solved;
}

/**
 * Returns the 16 bits that change an ICRC by `difference`; undefined if none do. A CRC is linear: each bit changes it
 * by a value of its own, whatever the other bytes are.
 * @param behind number of bytes from the identification to the ICRC
 */
function solveIdentification(difference: number, behind: number): number | undefined {
  const zeros = new Uint8Array(behind);
  const changes = Array.from({ length: 16 }, (_, bit) => {
    const value = 1 << bit;
    return asOnWire(register(register(0, Uint8Array.of(value >> 8, value & 255)), zeros));
  });
  // by Gray code, so that each step changes one bit
  let [bits, change] = [0, 0];
  for (let n = 1; n <= 0xffff; n++) {
    const bit = 31 - Math.clz32(n & -n);
    bits ^= 1 << bit;
    change = (change ^ (changes[bit] as number)) >>> 0;
    if (change === difference) return bits;
  }
  return undefined;
}
