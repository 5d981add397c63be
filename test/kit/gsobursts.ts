/**
 * GSO bursts and super-packets (Frames in src/link/link.ts), checked and made from the frames alone by the second
 * encoder. Nothing here comes from the card or from src/link.
 */

import { underived } from '../../src/probe/packet/decode.js';
import { bytesHex } from '../../src/probe/packet/hex.js';
import { decode, encode } from '../../src/probe/packet/packets.js';
import type { Sent } from './rig.js';

const CONTINUES_BURST = 0x10000;
const SEGMENT_SHIFT = 17;

export interface GsoLimits {
  readonly packets: number;
  readonly bytes: number;
}

/** Returns the bytes before the BTH: Ethernet, an optional tag, IPv4 or IPv6, UDP. */
export function headerBytes(frame: Uint8Array): number {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  const tag = view.getUint16(12) === 0x8100 ? 4 : 0;
  return 14 + tag + (view.getUint16(12 + tag) === 0x86dd ? 40 : 20) + 8;
}

/**
 * Returns the headers before the BTH without the fields that may differ within a burst: IP length, identification and
 * checksum, UDP length and checksum.
 */
export function commonHeaders(frame: Uint8Array): Buffer {
  const end = headerBytes(frame);
  const copy = Buffer.from(frame.subarray(0, end));
  copy.fill(0, end - 4, end);
  const ip = copy.readUInt16BE(12) === 0x8100 ? 18 : 14;
  if (copy.readUInt16BE(ip - 2) === 0x86dd) copy.fill(0, ip + 4, ip + 6);
  else {
    copy.fill(0, ip + 2, ip + 6);
    copy.fill(0, ip + 10, ip + 12);
  }
  return copy;
}

/** Returns the IPv4 identification; undefined for IPv6. */
export function identification(frame: Uint8Array): number | undefined {
  const { ip } = decode(frame);
  return ip.version === 4 ? ip.id : undefined;
}

/**
 * Divides the frames that a card has sent into GSO bursts.
 * @throws Error when a burst breaks a rule, or a packet differs from the second encoder's: ICRC, IP checksum, lengths
 */
export function gsoBursts(sent: readonly Sent[], limits?: GsoLimits): Uint8Array[][] {
  const bursts: Uint8Array[][] = [];
  for (const { bytes, options } of sent) {
    const whole = encode(underived(decode(bytes)));
    if (Buffer.compare(whole, bytes) !== 0)
      throw new Error(`the frame ${bytesHex(bytes)} should be ${bytesHex(whole)}`);
    const burst = bursts.at(-1);
    if ((options & CONTINUES_BURST) === 0) bursts.push([bytes]);
    else if (burst === undefined) throw new Error('the first frame continues a burst');
    else burst.push(bytes);
  }
  for (const burst of bursts) checkBurst(burst, limits);
  return bursts;
}

function checkBurst(burst: readonly Uint8Array[], limits: GsoLimits = { packets: 1, bytes: 0 }): void {
  const [first, last] = [burst[0], burst.at(-1)] as [Uint8Array, Uint8Array];
  const common = commonHeaders(first);
  for (const [i, frame] of burst.entries()) {
    if (Buffer.compare(commonHeaders(frame), common) !== 0) throw new Error(`packet ${i} of a burst has other headers`);
    const id = identification(frame);
    if (id !== undefined && id !== i) throw new Error(`packet ${i} of a burst has the identification ${id}`);
    if (frame !== last && frame.length !== first.length) throw new Error(`packet ${i} of a burst has another length`);
  }
  if (last.length > first.length) throw new Error('the last packet of a burst is longer than the others');
  const headers = common.length;
  const bytes = burst.reduce((sum, frame) => sum + frame.length - headers, 0);
  if (burst.length > 1 && (burst.length > limits.packets || bytes > limits.bytes))
    throw new Error(`a burst of ${burst.length} packets and ${bytes} bytes is over ${JSON.stringify(limits)}`);
}

export interface SuperPacket {
  readonly bytes: Uint8Array;
  /** Options of the receive descriptor. */
  readonly options: number;
}

/**
 * Returns the frames of one flow as one descriptor: the headers of the first frame, then all UDP payloads. All frames
 * but the last must have the same length.
 * @param options further options of the descriptor
 */
export function coalesce(frames: readonly Uint8Array[], options = 0): SuperPacket {
  const first = frames[0] as Uint8Array;
  const headers = headerBytes(first);
  const bytes = Buffer.concat([first.subarray(0, headers), ...frames.map((frame) => frame.subarray(headers))]);
  return { bytes: Uint8Array.from(bytes), options: (((first.length - headers) << SEGMENT_SHIFT) | options) >>> 0 };
}
