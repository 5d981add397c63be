/** Reads pcap (draft-ietf-opsawg-pcap). */
import type { Capture, CapturedPacket } from './captured.js';
import { endsWithin, Fields } from './fields.js';

const MICROSECONDS = 0xa1b2c3d4;
const NANOSECONDS = 0xa1b23c4d;
const FILE_HEADER_BYTES = 24;
const RECORD_HEADER_BYTES = 16;
/** The upper bits of the link type tell the length of a frame check sequence. */
const LINK_TYPE_MASK = 0xffff;

/** Reads a file of packets, as far as it is whole. @returns undefined if it does not start as pcap does */
export function readPcap(bytes: Uint8Array): Capture | undefined {
  for (const little of [false, true]) {
    const fields = new Fields(bytes, little);
    const magic = fields.u32(0);
    if (magic === MICROSECONDS) return readRecords(fields, 1000n);
    if (magic === NANOSECONDS) return readRecords(fields, 1n);
  }
  return undefined;
}

function readRecords(file: Fields, nsPerTick: bigint): Capture {
  const packets: CapturedPacket[] = [];
  const remarks: string[] = [];
  if (file.length < FILE_HEADER_BYTES) remarks.push(endsWithin('its header', 0, file.length));
  const linkType = file.length < FILE_HEADER_BYTES ? 0 : file.u32(20) & LINK_TYPE_MASK;
  for (let at = FILE_HEADER_BYTES; at < file.length; ) {
    const left = file.length - at;
    const length = left < RECORD_HEADER_BYTES ? 0 : file.u32(at + 8);
    if (left < RECORD_HEADER_BYTES + length) {
      remarks.push(endsWithin('a packet', at, left));
      break;
    }
    packets.push({
      time: BigInt(file.u32(at)) * 1_000_000_000n + BigInt(file.u32(at + 4)) * nsPerTick,
      data: file.slice(at + RECORD_HEADER_BYTES, length),
      wireLength: file.u32(at + 12),
      direction: 0,
      linkType,
    });
    at += RECORD_HEADER_BYTES + length;
  }
  return { format: 'pcap', packets, remarks };
}
