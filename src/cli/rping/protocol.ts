/**
 * The messages of rping. For a ping the client sends where its bytes are, and the server READs them and answers. Then
 * the client sends where to put them back, and the server WRITEs them there and answers. All messages have the same
 * form, but the content of the server's has no meaning.
 */
import type { Connection, ConnectionOptions, RemoteMemory } from '../../index.js';
import { failure } from '../exit.js';

/** The default port of rping, in the port space RDMA_PS_TCP. */
export const RPING_PORT = 7174;
/** Bytes of a ping. The stock program accepts no fewer, so that the number of the ping fits, and no more than 65535. */
export const MIN_PING_BYTES = 26;
export const MAX_PING_BYTES = 65_536;

/** Address of 64 bits, key and length of 32, big-endian. */
const MESSAGE_BYTES = 16;
/** The characters that fill a ping: A to z. */
const [FIRST_LETTER, LETTERS] = [65, 58];

/** The connection of either end: one message is in flight at a time, and one READ or WRITE moves a ping. */
export function connectionOptions(size: number): ConnectionOptions {
  return { messageBytes: Math.max(size, 64), receives: 8, sends: 2 };
}

export function encodeRdmaInfo({ addr, rkey, length }: RemoteMemory): Buffer {
  const message = Buffer.alloc(MESSAGE_BYTES);
  message.writeBigUInt64BE(BigInt(addr));
  message.writeUInt32BE(rkey, 8);
  message.writeUInt32BE(length, 12);
  return message;
}

/** @throws CliError when the message is not one of rping */
export function decodeRdmaInfo(message: Buffer): RemoteMemory {
  if (message.length !== MESSAGE_BYTES)
    throw failure(`the peer sent ${message.length} bytes, a message of rping has ${MESSAGE_BYTES}`, { code: 'EPROTO' });
  return { addr: message.readBigUInt64BE(), rkey: message.readUInt32BE(8), length: message.readUInt32BE(12) };
}

/** Sends a message. A failure also ends the connection, and is reported where the answer is awaited. */
export function sendMessage(connection: Connection, message: Buffer): void {
  connection.send(message).catch(() => {});
}

/** Returns the bytes of ping `n`, counted from 0: its number, the filling, a NUL. */
export function pingBytes(n: number, size: number): Buffer {
  const bytes = Buffer.alloc(size);
  const text = bytes.write(`rdma-ping-${n}: `, 0, 'latin1');
  for (let at = text; at < size - 1; at++) bytes[at] = FIRST_LETTER + ((n + at - text) % LETTERS);
  return bytes;
}

/** Returns the text up to the first NUL. */
export function textOf(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString('latin1', 0, end < 0 ? bytes.length : end);
}
