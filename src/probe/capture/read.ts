/** Reads packet captures: pcap and pcapng, in either byte order, with micro- or nanoseconds, gzipped or not. */
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { numberHex } from '../packet/hex.js';

/** A packet of a capture. */
export interface CapturedPacket {
  /** Nanoseconds since 1970. */
  time: bigint;
  /** The frame from its first byte, as far as it was captured. */
  data: Uint8Array;
  /** Bytes on the wire; more than the length of `data` if the capture was truncated. */
  wireLength: number;
  /** From the packet flags of pcapng: 1 = received, 2 = sent, 0 = unknown. */
  direction: 0 | 1 | 2;
}

/** A capture, read. */
export interface Capture {
  /** The format of the file. */
  format: 'pcap' | 'pcapng';
  /** 1 = Ethernet. */
  linkType: number;
  /** The packets in the order of the file. */
  packets: CapturedPacket[];
}

const PCAP_MICROSECONDS = 0xa1b2c3d4;
const PCAP_NANOSECONDS = 0xa1b23c4d;
const SECTION_HEADER = 0x0a0d0d0a;
const BYTE_ORDER = 0x1a2b3c4d;

/** Reads a capture. @throws RangeError when it has neither format, or ends within a record */
export function readCapture(pathOrBytes: string | Uint8Array): Capture {
  let bytes = typeof pathOrBytes === 'string' ? new Uint8Array(readFileSync(pathOrBytes)) : pathOrBytes;
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) bytes = new Uint8Array(gunzipSync(bytes));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const magic = view.getUint32(0);
  if (magic === SECTION_HEADER) return readPcapng(view);
  for (const little of [false, true]) {
    const kind = view.getUint32(0, little);
    if (kind === PCAP_MICROSECONDS) return readPcap(view, little, 1000n);
    if (kind === PCAP_NANOSECONDS) return readPcap(view, little, 1n);
  }
  throw new RangeError(`the file starts with ${numberHex(magic)}, which is not a capture format`);
}

function slice(view: DataView, at: number, length: number): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset + at, length).slice();
}

function readPcap(view: DataView, little: boolean, nsPerTick: bigint): Capture {
  const packets: CapturedPacket[] = [];
  for (let at = 24; at < view.byteLength; ) {
    const seconds = BigInt(view.getUint32(at, little));
    const ticks = BigInt(view.getUint32(at + 4, little));
    const length = view.getUint32(at + 8, little);
    const time = seconds * 1_000_000_000n + ticks * nsPerTick;
    const data = slice(view, at + 16, length);
    packets.push({ time, data, wireLength: view.getUint32(at + 12, little), direction: 0 });
    at += 16 + length;
  }
  return { format: 'pcap', linkType: view.getUint32(20, little), packets };
}

interface Interface {
  linkType: number;
  ticksPerSecond: bigint;
}

/** Returns the options of a block by code; of several with the same code the last one. */
function options(view: DataView, from: number, to: number, little: boolean): Map<number, DataView> {
  const found = new Map<number, DataView>();
  for (let at = from; at + 4 <= to; ) {
    const [code, length] = [view.getUint16(at, little), view.getUint16(at + 2, little)];
    if (code === 0) break;
    found.set(code, new DataView(view.buffer, view.byteOffset + at + 4, length));
    at += 4 + ((length + 3) & ~3);
  }
  return found;
}

function readInterface(view: DataView, at: number, end: number, little: boolean): Interface {
  const resolution = options(view, at + 16, end - 4, little)
    .get(9)
    ?.getUint8(0);
  const power = resolution === undefined ? 6 : resolution & 0x7f;
  const binary = resolution !== undefined && resolution > 0x7f;
  return { linkType: view.getUint16(at + 8, little), ticksPerSecond: (binary ? 2n : 10n) ** BigInt(power) };
}

function readPacket(view: DataView, at: number, end: number, little: boolean, of: readonly Interface[]) {
  const u32 = (offset: number) => view.getUint32(at + offset, little);
  const from = of[u32(8)];
  if (!from) throw new RangeError(`packet of interface ${u32(8)}, but the section has ${of.length} interfaces`);
  const ticks = (BigInt(u32(12)) << 32n) | BigInt(u32(16));
  const length = u32(20);
  const flags = options(view, at + 28 + ((length + 3) & ~3), end - 4, little).get(2);
  const direction = ((flags?.getUint32(0, little) ?? 0) & 3) as CapturedPacket['direction'];
  const time = (ticks * 1_000_000_000n) / from.ticksPerSecond;
  return { time, data: slice(view, at + 28, length), wireLength: u32(24), direction };
}

function readPcapng(view: DataView): Capture {
  const capture: Capture = { format: 'pcapng', linkType: 0, packets: [] };
  let little = false;
  let interfaces: Interface[] = [];
  for (let at = 0; at < view.byteLength; ) {
    if (view.getUint32(at) === SECTION_HEADER) {
      little = view.getUint32(at + 8, true) === BYTE_ORDER;
      interfaces = [];
    }
    const [type, length] = [view.getUint32(at, little), view.getUint32(at + 4, little)];
    const end = at + length;
    if (length < 12 || end > view.byteLength) throw new RangeError(`block of ${length} bytes at offset ${at}`);
    if (view.getUint32(end - 4, little) !== length) throw new RangeError(`block at offset ${at} has two lengths`);
    if (type === 1) interfaces.push(readInterface(view, at, end, little));
    if (type === 6) capture.packets.push(readPacket(view, at, end, little, interfaces));
    at = end;
  }
  capture.linkType = interfaces[0]?.linkType ?? 0;
  return capture;
}
