// Frames as rules of faults see them: the single packets of what a link delivers.
import { expect, test } from 'vitest';
import { RX_ICRC_FOLDED, RX_IP_ID_UNKNOWN, RX_SEGMENT_SHIFT } from '../../src/link/frames.js';
import { singlePackets, withIdentification } from '../../src/probe/faults/frames.js';
import { decode } from '../../src/probe/packet/decode.js';
import { encode } from '../../src/probe/packet/encode.js';
import { register } from '../../src/probe/packet/icrc.js';
import { flowOf, frameOf, request } from '../../src/probe/packet/packets.js';

const MACS = { srcMac: '02:00:00:00:00:01', dstMac: '02:00:00:00:00:02' };
const FLOWS = {
  IPv4: { ...MACS, srcIp: '10.0.0.1', dstIp: '10.0.0.2', destQp: 0x12 },
  IPv6: { ...MACS, srcIp: 'fd00::1', dstIp: 'fd00::2', destQp: 0x12 },
};
const HEADERS = { IPv4: 14 + 20 + 8, IPv6: 14 + 40 + 8 };

/** Packets of a message, with identifications that count up by a step. */
function packets(family: keyof typeof FLOWS, idStep: number, sizes: readonly number[]): Uint8Array[] {
  return sizes.map((bytes, psn) => {
    const payload = Uint8Array.from({ length: bytes }, (_, i) => (i * 7 + psn) & 255);
    const frame = frameOf(flowOf(FLOWS[family]), request.writeMiddle({ psn, payload }));
    const id = (0xfffe + idStep * psn) & 0xffff;
    return encode({ ...frame, ip: frame.ip.version === 4 ? { ...frame.ip, id } : frame.ip });
  });
}

/** Joins packets as links do. */
function join(frames: readonly Uint8Array[], headers: number): { frame: Uint8Array; options: number } {
  const [first] = frames as [Uint8Array];
  const frame = Buffer.concat([first, ...frames.slice(1).map((each) => each.subarray(headers))]);
  return { frame, options: ((first.length - headers) << RX_SEGMENT_SHIFT) >>> 0 };
}

/** Folds the CRC of its ICRC span into the ICRC of a frame. */
function fold(frame: Uint8Array, headers: number): void {
  const end = frame.length - 4;
  const behind = end - headers - 12;
  if (behind < 256) return;
  const span = 2 ** Math.min(12, Math.floor(Math.log2(behind)));
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  view.setUint32(end, view.getUint32(end, true) ^ register(0, frame.subarray(end - span, end)), true);
}

test.each([
  ['IPv4', 0],
  ['IPv4', 1],
  ['IPv6', 0],
] as const)('a super-packet is its packets, with their headers and ICRCs: %s, identification + %i', (family, step) => {
  const frames = packets(family, step, [1024, 1024, 1024, 100]);
  const { frame, options } = join(frames, HEADERS[family]);
  const single = singlePackets(frame, options);
  expect(single.map(({ options: left }) => left)).toEqual([0, 0, 0, 0]);
  for (const [i, { frame: found }] of single.entries()) {
    const [is, was] = [decode(found), decode(frames[i] as Uint8Array)];
    // UDP checksums cannot be joined
    expect({ ...is, udp: { ...is.udp, checksum: 0 } }).toEqual({ ...was, udp: { ...was.udp, checksum: 0 } });
  }
});

test.each(['IPv4', 'IPv6'] as const)('the ICRC is whole again after an offload: %s', (family) => {
  const frames = packets(family, 0, [64, 244, 256, 1024, 4096]);
  for (const frame of frames) {
    const folded = Buffer.concat([frame, Buffer.from('behind it')]);
    fold(folded.subarray(0, frame.length), HEADERS[family]);
    const [{ frame: found, options } = { frame: folded, options: -1 }] = singlePackets(folded, RX_ICRC_FOLDED);
    expect([options, Buffer.from(found.subarray(0, frame.length)).equals(frame)]).toEqual([0, true]);
  }
});

test('a hidden identification is found by the ICRC, and a wrong ICRC stays wrong', () => {
  for (const frame of packets('IPv4', 0x1234, [0, 64, 1024, 4096])) {
    const hidden = Uint8Array.from(frame);
    new DataView(hidden.buffer).setUint16(14 + 4, 0);
    expect(decode(hidden).icrcOk).toBe(false);
    expect(Buffer.from(withIdentification(hidden)).equals(frame)).toBe(true);
  }
  const [frame] = packets('IPv6', 0, [64]) as [Uint8Array];
  (frame as Uint8Array)[frame.length - 1] ^= 1;
  expect(withIdentification(frame)).toBe(frame);
  expect(singlePackets(frame, RX_IP_ID_UNKNOWN)).toEqual([{ frame, options: RX_IP_ID_UNKNOWN }]);
});
