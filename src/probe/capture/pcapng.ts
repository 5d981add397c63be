/** Reads pcapng (draft-ietf-opsawg-pcapng). */
import type { Capture, CapturedPacket } from './captured.js';
import { endsWithin, Fields } from './fields.js';

const BLOCK = { SECTION: 0x0a0d0d0a, INTERFACE: 1, OLD_PACKET: 2, SIMPLE: 3, PACKET: 6 } as const;
const OPTION = { PACKET_FLAGS: 2, IF_TSRESOL: 9, IF_TSOFFSET: 14 } as const;
const BYTE_ORDER = 0x1a2b3c4d;
/** Type and length before the body of a block, and the length again behind it. */
const HEAD_BYTES = 8;
const TAIL_BYTES = 4;
/** Bytes of the fields before the data of a packet. */
const PACKET_FIELDS = 20;

/** Reads a file of blocks, as far as it is whole. @returns undefined if it does not start as pcapng does */
export function readPcapng(bytes: Uint8Array): Capture | undefined {
  if (new Fields(bytes, false).u32(0) !== BLOCK.SECTION) return undefined;
  const reader = new Reader();
  const { packets } = reader;
  const remarks: string[] = [];
  const broken: number[] = [];
  let file = new Fields(bytes, false);
  for (let at = 0, length: number; at < file.length; at += length) {
    const left = file.length - at;
    if (left >= HEAD_BYTES + 4 && file.u32(at) === BLOCK.SECTION) {
      // each section has its own byte order
      file = new Fields(bytes, new Fields(bytes, true).u32(at + HEAD_BYTES) === BYTE_ORDER);
      reader.beginSection();
    }
    length = left < HEAD_BYTES ? HEAD_BYTES + TAIL_BYTES : file.u32(at + 4);
    if (length < HEAD_BYTES + TAIL_BYTES || length % 4 !== 0) {
      remarks.push(`The block at offset ${at} has a length of ${length}: nothing is read from there.`);
      break;
    }
    if (left < length) {
      remarks.push(endsWithin('a block', at, left));
      break;
    }
    const body = file.part(at + HEAD_BYTES, at + length - TAIL_BYTES);
    const isRead = file.u32(at + length - TAIL_BYTES) === length && reader.block(file.u32(at), body);
    if (!isRead) broken.push(at);
  }
  if (broken.length > 0)
    remarks.push(`${broken.length} blocks contradict themselves, the first at offset ${broken[0]}: they are left out.`);
  if (reader.untimed > 0) remarks.push(`${reader.untimed} packets have no time: each has that of the one before it.`);
  return { format: 'pcapng', packets, remarks };
}

interface Interface {
  readonly linkType: number;
  readonly snapLength: number;
  readonly ticksPerSecond: bigint;
  /** Seconds that are added to all times. */
  readonly offset: bigint;
}

/** Reads the blocks of a file, one by one. */
class Reader {
  readonly packets: CapturedPacket[] = [];
  /** Number of packets without a time. */
  untimed = 0;
  #interfaces: Interface[] = [];

  beginSection(): void {
    this.#interfaces = [];
  }

  /** @returns false if the block is shorter than its fields say, or names an interface that its section lacks */
  block(type: number, body: Fields): boolean {
    switch (type) {
      case BLOCK.INTERFACE:
        return this.#interface(body);
      case BLOCK.PACKET:
        return body.length >= 4 && this.#packet(body, body.u32(0));
      case BLOCK.OLD_PACKET:
        return body.length >= 4 && this.#packet(body, body.u16(0));
      case BLOCK.SIMPLE:
        return this.#simple(body);
      default:
        return true;
    }
  }

  #interface(body: Fields): boolean {
    if (body.length < 8) return false;
    const found = options(body, 8);
    const resolution = found.get(OPTION.IF_TSRESOL)?.bytes[0] ?? 6;
    const base = resolution > 0x7f ? 2n : 10n;
    const offset = found.get(OPTION.IF_TSOFFSET);
    this.#interfaces.push({
      linkType: body.u16(0),
      snapLength: body.u32(4),
      ticksPerSecond: base ** BigInt(resolution & 0x7f),
      offset: offset?.length === 8 ? offset.i64(0) : 0n,
    });
    return true;
  }

  #packet(body: Fields, number: number): boolean {
    const from = this.#interfaces[number];
    if (from === undefined || body.length < PACKET_FIELDS) return false;
    const length = body.u32(12);
    if (length > body.length - PACKET_FIELDS) return false;
    const ticks = (BigInt(body.u32(4)) << 32n) | BigInt(body.u32(8));
    const flags = options(body, PACKET_FIELDS + ((length + 3) & ~3)).get(OPTION.PACKET_FLAGS);
    this.packets.push({
      time: from.offset * 1_000_000_000n + (ticks * 1_000_000_000n) / from.ticksPerSecond,
      data: body.slice(PACKET_FIELDS, length),
      wireLength: body.u32(16),
      direction: ((flags?.length === 4 ? flags.u32(0) : 0) & 3) as CapturedPacket['direction'],
      linkType: from.linkType,
    });
    return true;
  }

  #simple(body: Fields): boolean {
    const from = this.#interfaces[0];
    if (from === undefined || body.length < 4) return false;
    const wireLength = body.u32(0);
    const length = Math.min(wireLength, from.snapLength || wireLength, body.length - 4);
    const { linkType } = from;
    const time = this.packets.at(-1)?.time ?? 0n;
    this.untimed++;
    this.packets.push({ time, data: body.slice(4, length), wireLength, direction: 0, linkType });
    return true;
  }
}

/** Returns the options of a block by code; of several with the same code the last one. */
function options(body: Fields, from: number): Map<number, Fields> {
  const found = new Map<number, Fields>();
  for (let at = from; at + 4 <= body.length; ) {
    const [code, length] = [body.u16(at), body.u16(at + 2)];
    if (code === 0 || at + 4 + length > body.length) break;
    found.set(code, body.part(at + 4, at + 4 + length));
    at += 4 + ((length + 3) & ~3);
  }
  return found;
}
