/**
 * Private data of requests and replies, with the size of the messages that this end receives behind it:
 *
 *     | the application's data | zeroes | messageBytes: u32 | length of the data: u8 | version 1: u8 | digest: 10 |
 *
 * The last 16 bytes are the trailer, big endian. It lies where rdma_cm pads with zeroes, so that a peer without this
 * project sees its data, followed by bytes that it has no length for. The digest is that of SHA-256 over a name and all
 * bytes before it: a peer that does not mean the trailer does not send it by accident, and a copy of it at another
 * place is none. Data that leaves no room is sent without a trailer.
 */
import { hash } from 'node:crypto';
import { rememberedOfBytes } from '../../base/remembered.js';

const TRAILER_BYTES = 16;
const DIGEST_BYTES = 10;
const VERSION = 1;
const NAME = Buffer.from('wasm-roce private data');

/** Private data of a peer. */
export interface PeerData {
  /** The bytes that the peer's application has passed; those of other peers with rdma_cm's padding. */
  readonly privateData: Uint8Array;
  /** Largest message that the peer receives; undefined if the peer has not said so. */
  readonly messageBytes: number | undefined;
}

/**
 * Returns private data with a trailer, or as it is when there is no room.
 * @param limit bytes that the message of rdma_cm has for private data
 */
export function encodePrivateData(data: Uint8Array, messageBytes: number, limit: number): Uint8Array {
  if (data.length > limit - TRAILER_BYTES) return data;
  const bytes = Buffer.alloc(limit);
  bytes.set(data);
  const at = limit - TRAILER_BYTES;
  bytes.writeUInt32BE(messageBytes, at);
  bytes.writeUInt8(data.length, at + 4);
  bytes.writeUInt8(VERSION, at + 5);
  digestOf(bytes).copy(bytes, limit - DIGEST_BYTES);
  return bytes;
}

/** Reads private data as it has arrived, with all its padding. */
export function decodePrivateData(received: Uint8Array): PeerData {
  const bytes = Buffer.from(received);
  const at = bytes.length - TRAILER_BYTES;
  const isTrailer = at >= 0 && bytes[at + 5] === VERSION && digestOf(bytes).equals(bytes.subarray(-DIGEST_BYTES));
  if (!isTrailer) return { privateData: bytes, messageBytes: undefined };
  const length = Math.min(bytes.readUInt8(at + 4), at);
  return { privateData: bytes.subarray(0, length), messageBytes: bytes.readUInt32BE(at) };
}

/** @param bytes private data, whose last bytes are the digest or its place */
const digestOf = (bytes: Buffer) => digestOfCovered(bytes.subarray(0, bytes.length - DIGEST_BYTES));

const digestOfCovered = rememberedOfBytes((covered) =>
  hash('sha256', Buffer.concat([NAME, covered]), 'buffer').subarray(0, DIGEST_BYTES),
);
