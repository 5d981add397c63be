/**
 * What the two ends of rping say. A ping: the client sends where its bytes are, the server READs them and sends that it
 * has; the client sends where they may come back to, the server WRITEs them there and sends that it has. Every message is
 * of one form, of which the server's tell nothing but by coming.
 */
import type { Connection, ConnectionOptions, RemoteMemory } from '../../index.js';
import { failure } from '../exit.js';

/** TCP port space; where rping listens unless told otherwise. */
export const PORT = 7174;
/** Bytes of a ping: the stock program takes no fewer, so that its number fits, and no more than 65535. */
export const SMALLEST = 26;
export const LARGEST = 65_536;

/** Address of 64 bits, key and length of 32, big-endian. */
const MESSAGE_BYTES = 16;
/** The letters that fill a ping up: A to z. */
const [FIRST_LETTER, LETTERS] = [65, 58];

/** What both ends take: one word is under way at a time, and a ping is read and written at once. */
export function connectionOptions(size: number): ConnectionOptions {
  return { messageBytes: Math.max(size, 64), receives: 8, sends: 2 };
}

export function encodeWhere({ addr, rkey, length }: RemoteMemory): Buffer {
  const message = Buffer.alloc(MESSAGE_BYTES);
  message.writeBigUInt64BE(BigInt(addr));
  message.writeUInt32BE(rkey, 8);
  message.writeUInt32BE(length, 12);
  return message;
}

/** @throws CliError when it is no such message */
export function decodeWhere(message: Buffer): RemoteMemory {
  if (message.length !== MESSAGE_BYTES)
    throw failure(`the peer sent ${message.length} bytes, a message of rping has ${MESSAGE_BYTES}`);
  return { addr: message.readBigUInt64BE(), rkey: message.readUInt32BE(8), length: message.readUInt32BE(12) };
}

/** Sends a message of this end. That it fails is seen by what ends the connection, where the answer is waited for. */
export function say(connection: Connection, message: Buffer): void {
  connection.send(message).catch(() => {});
}

/** The bytes of ping `n`, from 0 on: its number, letters, a NUL. */
export function pingBytes(n: number, size: number): Buffer {
  const bytes = Buffer.alloc(size);
  const text = bytes.write(`rdma-ping-${n}: `, 0, 'latin1');
  for (let at = text; at < size - 1; at++) bytes[at] = FIRST_LETTER + ((n + at - text) % LETTERS);
  return bytes;
}

/** Up to the first NUL. */
export function textOf(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString('latin1', 0, end < 0 ? bytes.length : end);
}
