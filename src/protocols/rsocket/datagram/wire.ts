/**
 * The wire format of datagram rsockets.
 *
 * A message goes to a queue pair, by UD. To a peer whose queue pair is not known yet it goes by plain UDP, in a packet
 * that introduces the queue pair of its sender; the peer introduces its own in return. Ports are those of UDP.
 */
import { isIPv6 } from 'node:net';
import { gidToHex } from '../../../base/gid.js';

/** First bytes of an introduction. */
const TAG = 0x5555_5555;
/** Bytes of an introduction, and of the header of a message, without the address. */
const INTRODUCTION_BYTES = 12;
const HEADER_BYTES = 4;
/** Bytes in front of an IPv6 address in the header of a message: flow information. */
const FLOW_BYTES = 4;
/** Q_Key of every queue pair. */
export const QKEY = 0x0123_4567;
/** Bytes of a message with its header, and of an introduction: a stock receiver has no room for more. */
export const MESSAGE_BYTES = 2048;

/** Kinds of introductions. */
enum Kind {
  /** With a message. */
  MESSAGE = 0,
  /** The answer. */
  ANSWER = 7,
}

/** The sender of a packet of UDP. */
export interface Introduction {
  /** Queue pair number of the sender, 24 bits. */
  readonly qpNum: number;
  /** The message that came with it; undefined: it is an answer. */
  readonly message: Uint8Array | undefined;
}

/** Bytes of an address of an IP version. */
const addressBytes = (version: 4 | 6) => (version === 4 ? 4 : 16);

/** Writes an IP address to the last bytes of a header. */
function putAddress(header: Buffer, address: string, version: 4 | 6): void {
  const gid = Buffer.from(gidToHex(address), 'hex');
  const count = addressBytes(version);
  header.set(gid.subarray(gid.length - count), header.length - count);
}

/** Bytes in front of a message of UD. */
export function headerBytes(version: 4 | 6): number {
  return HEADER_BYTES + (version === 4 ? 0 : FLOW_BYTES) + addressBytes(version);
}

/** Bytes in front of the message of an introduction. */
export function introductionBytes(version: 4 | 6): number {
  return INTRODUCTION_BYTES + addressBytes(version);
}

/** @param from IP address of ours */
export function encodeIntroduction(from: string, { qpNum, message }: Introduction): Buffer {
  const version = isIPv6(from) ? 6 : 4;
  const length = introductionBytes(version);
  const bytes = Buffer.alloc(length + (message?.length ?? 0));
  bytes.writeUInt32BE(TAG);
  bytes[4] = version;
  bytes[5] = message === undefined ? Kind.ANSWER : Kind.MESSAGE;
  bytes[6] = length;
  bytes.writeUInt32BE(qpNum, 8);
  putAddress(bytes.subarray(0, length), from, version);
  if (message !== undefined) bytes.set(message, length);
  return bytes;
}

/**
 * Returns undefined for what is no introduction. The address within is not looked at: the stock library writes a wrong
 * one for IPv6, and that of the packet is right.
 */
export function decodeIntroduction(bytes: Buffer, version: 4 | 6): Introduction | undefined {
  const length = introductionBytes(version);
  if (bytes.length < length || bytes.length > MESSAGE_BYTES || bytes.readUInt32BE() !== TAG) return undefined;
  if (bytes[4] !== version || bytes[6] !== length) return undefined;
  const qpNum = bytes.readUInt32BE(8) & 0xff_ffff;
  switch (bytes[5]) {
    case Kind.MESSAGE:
      return { qpNum, message: bytes.subarray(length) };
    case Kind.ANSWER:
      return { qpNum, message: undefined };
    default:
      return undefined;
  }
}

/** Returns the header of a message of UD. @param from IP address of ours @param port port of ours */
export function encodeHeader(from: string, port: number): Buffer {
  const version = isIPv6(from) ? 6 : 4;
  const bytes = Buffer.alloc(headerBytes(version));
  bytes[0] = version;
  bytes[1] = bytes.length;
  bytes.writeUInt16BE(port, 2);
  putAddress(bytes, from, version);
  return bytes;
}

/**
 * Returns the port of the sender of a message of UD, and the message; undefined for one without a valid header. No
 * sender has port 0 (RFC 768).
 */
export function decodeHeader(bytes: Buffer, version: 4 | 6): { port: number; message: Buffer } | undefined {
  const length = headerBytes(version);
  if (bytes.length < length || bytes[0] !== version || bytes[1] !== length) return undefined;
  const port = bytes.readUInt16BE(2);
  return port === 0 ? undefined : { port, message: bytes.subarray(length) };
}
