/**
 * The wire format of rsockets, version 1: private data, immediate data and lists of memory.
 *
 * Each end announces memory, piece after piece. The peer writes a stream of bytes into the pieces by RDMA WRITE with
 * immediate; the immediate has the number of bytes. The pieces that may be written stand in the target list, two
 * entries in the memory of the writer: the reader writes an entry again when its piece is filled. The pieces of the
 * stock implementation are the two halves of a ring.
 */
import { VerbsError } from '../../index.js';
import { checkPeerMemory, type PeerMemory } from '../../transport/peermemory.js';

/** Version of the protocol, the only one. */
const VERSION = 1;
/** Bytes of the private data of a REQ and of a REP. */
export const CONNECT_BYTES = 40;
/** Flag of the private data: the sender's lists are big endian. */
const FLAG_BIG_ENDIAN = 1;
/** Flag of the private data: the sender's list has the size of its table of mapped memory. */
const FLAG_IOMAP = 2;

/** Entries of a target list, and the bytes of each. */
export const TARGETS = 2;
export const TARGET_BYTES = 16;
/** Bytes of an entry of the table of mapped memory, which follows the target list. */
export const MAPPING_BYTES = 24;
/** Sizes of the table of mapped memory: up to 128, or 256 times a number of seven bits. */
export const MAX_EXACT_MAPPINGS = 0x80;
export const MAPPINGS_UNIT = 0x100;
export const MAX_MAPPINGS = 0x7f * MAPPINGS_UNIT;

/** Kind of a message: the upper three bits of its immediate data. */
export enum MessageKind {
  /** Bytes of the stream; the value is their number. */
  DATA = 0,
  /** Credits; the value is the first sequence number that has none. With an entry of the target list, or without. */
  CREDITS = 4,
  /** Entry of the table of mapped memory; the value is its index. */
  IOMAP = 6,
  /** One of `Control`. */
  CONTROL = 7,
}

/** Value of a message of kind CONTROL. */
export enum Control {
  /** The sender writes and reads no more. */
  DISCONNECT = 0,
  /** The sender writes no more. */
  SHUTDOWN = 2,
}

/** Returns the immediate data of a message. @param value 29 bits */
export const immediate = (kind: MessageKind, value: number): number => ((kind << 29) | value) >>> 0;

/** Returns the kind of a message, which may be none that is known. */
export const messageKind = (imm: number): number => imm >>> 29;

/** Returns the value of a message, 29 bits. */
export const messageValue = (imm: number): number => imm & 0x1fff_ffff;

/** The private data of a REQ or REP: what an end tells of its memory. */
export interface ConnectData {
  /** Whether its lists are in big-endian order. */
  readonly isBigEndian: boolean;
  /** Messages with data that it can take before it gives further credits, 16 bits. */
  readonly credits: number;
  /** Its target list, which we write to; `length` counts entries. */
  readonly list: PeerMemory;
  /** The first piece of its memory that we may write. */
  readonly buffer: PeerMemory;
  /** Entries of its table of mapped memory, which we write to: 0 to 128, or a multiple of 256 up to 32512. */
  readonly mappings: number;
}

/** Memory of the other end that is written by offsets. */
export interface Mapping {
  readonly offset: bigint;
  readonly target: PeerMemory;
}

/** Bit of a size that counts units of `MAPPINGS_UNIT`. */
const SCALED = 0x80;

/** Returns the private data of an end. */
export function encodeConnectData({ isBigEndian, credits, list, buffer, mappings }: ConnectData): Uint8Array {
  const view = new DataView(new ArrayBuffer(CONNECT_BYTES));
  view.setUint8(0, VERSION);
  view.setUint8(1, FLAG_IOMAP | (isBigEndian ? FLAG_BIG_ENDIAN : 0));
  view.setUint16(2, credits);
  view.setUint8(7, mappings <= MAX_EXACT_MAPPINGS ? mappings : SCALED | (mappings / MAPPINGS_UNIT));
  [list, buffer].forEach(({ addr, rkey, length }, i) => {
    const at = 8 + i * TARGET_BYTES;
    view.setBigUint64(at, addr);
    view.setUint32(at + 8, rkey);
    view.setUint32(at + 12, length);
  });
  return new Uint8Array(view.buffer);
}

/** @throws VerbsError EOPNOTSUPP when the peer speaks no rsockets, or another version of it */
export function decodeConnectData(bytes: Uint8Array): ConnectData {
  if (bytes.length < CONNECT_BYTES)
    throw refused(`its private data has ${bytes.length} bytes, rsockets need ${CONNECT_BYTES}`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, CONNECT_BYTES);
  const version = view.getUint8(0);
  if (version !== VERSION) throw refused(`its rsockets have version ${version}, ours ${VERSION}`);
  const [list, buffer] = [8, 8 + TARGET_BYTES].map((at) => ({
    addr: view.getBigUint64(at),
    rkey: view.getUint32(at + 8),
    length: view.getUint32(at + 12),
  })) as [PeerMemory, PeerMemory];
  const scaled = view.getUint8(7);
  if (list.length < TARGETS) throw refused(`its target list has ${list.length} entries, must have ${TARGETS}`);
  const mappings = scaled <= MAX_EXACT_MAPPINGS ? scaled : (scaled & ~SCALED) * MAPPINGS_UNIT;
  const length = list.length * TARGET_BYTES + mappings * MAPPING_BYTES;
  checkPeerMemory('its target list with the table of mappings', { addr: list.addr, length }, refused);
  return {
    isBigEndian: (view.getUint8(1) & FLAG_BIG_ENDIAN) !== 0,
    credits: view.getUint16(2),
    list,
    buffer: checkPeerMemory('its buffer', buffer, refused),
    mappings,
  };
}

/** Writes an entry as the peer reads it from its own list. */
export function writeTarget(
  view: DataView,
  at: number,
  { addr, rkey, length }: PeerMemory,
  isBigEndian: boolean,
): void {
  view.setBigUint64(at, addr, !isBigEndian);
  view.setUint32(at + 8, rkey, !isBigEndian);
  view.setUint32(at + 12, length, !isBigEndian);
}

/** Reads an entry of our own list. @throws VerbsError EIO when it ends beyond the last address */
export function readTarget(view: DataView, at: number): PeerMemory {
  const target = {
    addr: view.getBigUint64(at, true),
    rkey: view.getUint32(at + 8, true),
    length: view.getUint32(at + 12, true),
  };
  return checkPeerMemory('a part of its buffer', target, broken);
}

/** Writes an entry of the peer's table of mapped memory. */
export function writeMapping(view: DataView, at: number, { offset, target }: Mapping, isBigEndian: boolean): void {
  view.setBigUint64(at, offset, !isBigEndian);
  writeTarget(view, at + 8, target, isBigEndian);
}

/** Reads an entry of our own table of mapped memory. @throws as `readTarget` */
export function readMapping(view: DataView, at: number): Mapping {
  return { offset: view.getBigUint64(at, true), target: readTarget(view, at + 8) };
}

/** An error of a peer that does not keep to the protocol. */
export const broken = (why: string) =>
  new VerbsError('EIO', `the peer does not keep to the protocol of rsockets: ${why}`);

const refused = (why: string) => new VerbsError('EOPNOTSUPP', `the peer is no rsocket: ${why}`);
