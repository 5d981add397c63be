/**
 * Runs and super-packets (Frames in src/link/link.ts), judged and made from the frames alone, by the second encoder: nothing
 * here comes from the card or from src/link.
 */

import { underived } from './decode.js';
import { decode, encode } from './packets.js';
import type { Sent } from './rig.js';

const CONTINUES_RUN = 0x10000;
const SEGMENT_SHIFT = 17;

export interface RunLimits {
  readonly packets: number;
  readonly bytes: number;
}

/** Bytes in front of the BTH: Ethernet, a tag or none, IPv4 or IPv6, UDP. */
export function headerBytes(frame: Uint8Array): number {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  const tag = view.getUint16(12) === 0x8100 ? 4 : 0;
  return 14 + tag + (view.getUint16(12 + tag) === 0x86dd ? 40 : 20) + 8;
}

/** The headers in front of the BTH, without what may differ within a run: IP length, identification and sum, UDP length. */
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

/** IPv4 identification; undefined for IPv6. */
export function identification(frame: Uint8Array): number | undefined {
  const { ip } = decode(frame);
  return ip.version === 4 ? ip.id : undefined;
}

/**
 * Cuts what a card has sent into runs.
 * @throws Error where a run is none, or a packet is not what the second encoder makes of it: ICRC, IP checksum, lengths
 */
export function runsOf(sent: readonly Sent[], limits?: RunLimits): Uint8Array[][] {
  const runs: Uint8Array[][] = [];
  for (const { bytes, options } of sent) {
    const whole = encode(underived(decode(bytes)));
    if (Buffer.compare(whole, bytes) !== 0) throw new Error(`the frame ${hex(bytes)} should be ${hex(whole)}`);
    const run = runs.at(-1);
    if ((options & CONTINUES_RUN) === 0) runs.push([bytes]);
    else if (run === undefined) throw new Error('the first frame continues a run');
    else run.push(bytes);
  }
  for (const run of runs) checkRun(run, limits);
  return runs;
}

function checkRun(run: readonly Uint8Array[], limits: RunLimits = { packets: 1, bytes: 0 }): void {
  const [first, last] = [run[0], run.at(-1)] as [Uint8Array, Uint8Array];
  const common = commonHeaders(first);
  for (const [i, frame] of run.entries()) {
    if (Buffer.compare(commonHeaders(frame), common) !== 0) throw new Error(`packet ${i} of a run has other headers`);
    const id = identification(frame);
    if (id !== undefined && id !== i) throw new Error(`packet ${i} of a run has the identification ${id}`);
    if (frame !== last && frame.length !== first.length) throw new Error(`packet ${i} of a run has another length`);
  }
  if (last.length > first.length) throw new Error('the last packet of a run is longer than the others');
  const headers = common.length;
  const bytes = run.reduce((sum, frame) => sum + frame.length - headers, 0);
  if (run.length > 1 && (run.length > limits.packets || bytes > limits.bytes))
    throw new Error(`a run of ${run.length} packets and ${bytes} bytes is over ${JSON.stringify(limits)}`);
}

export interface SuperPacket {
  readonly bytes: Uint8Array;
  /** Of the receive descriptor. */
  readonly options: number;
}

/** The frames of one flow as one descriptor: the first one's headers, then all UDP payloads. All but the last must be of one length.
 * @param options to be added to those of the descriptor */
export function coalesce(frames: readonly Uint8Array[], options = 0): SuperPacket {
  const first = frames[0] as Uint8Array;
  const headers = headerBytes(first);
  const bytes = Buffer.concat([first.subarray(0, headers), ...frames.map((frame) => frame.subarray(headers))]);
  return { bytes: Uint8Array.from(bytes), options: (((first.length - headers) << SEGMENT_SHIFT) | options) >>> 0 };
}

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');
