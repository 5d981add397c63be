/** The arguments of `send`, in all forms that `dgram.Socket` has. */
import { wrongNumber, wrongType } from '../../../base/options.js';

/** A message: text, which is sent as UTF-8, or bytes, or several of both, which are sent as one message. */
export type DatagramData = string | NodeJS.ArrayBufferView | readonly (string | NodeJS.ArrayBufferView)[];

/** Called when the message has left, or cannot leave. */
export type Done = (error?: Error) => void;

/** The arguments of a call of `send`. */
export interface SendArguments {
  readonly message: Uint8Array;
  /** Undefined: the peer of the socket. */
  readonly port: unknown;
  /** Undefined: the peer of the socket, or the own host. */
  readonly address: string | undefined;
  readonly done: Done | undefined;
}

/**
 * @param rest offset and length of a part of the data, or none; port, or none for a socket with a peer; address, or
 * none; callback, or none
 * @throws TypeError, RangeError
 */
export function sendArguments(data: DatagramData, rest: readonly unknown[], hasPeer: boolean): SendArguments {
  const isPart = hasPeer
    ? typeof rest[1] === 'number'
    : Boolean(rest[3]) || (Boolean(rest[2]) && typeof rest[2] !== 'function');
  const bytes = bytesOf(data);
  const message = isPart ? partOf(bytes, rest[0], rest[1]) : bytes;
  // a socket with a peer takes a destination behind a part of the data only, and refuses it
  const others = isPart ? rest.slice(2) : hasPeer ? [undefined, undefined, rest[0]] : rest;
  const at = others.findIndex((argument) => typeof argument === 'function');
  const [port, address] = at < 0 ? others : others.slice(0, at);
  if (address !== undefined && address !== null && typeof address !== 'string')
    throw wrongType('address', address, 'text');
  return { message, port, address: address || undefined, done: at < 0 ? undefined : (others[at] as Done) };
}

function bytesOf(data: DatagramData): Uint8Array {
  if (typeof data === 'string') return Buffer.from(data);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (Array.isArray(data)) return Buffer.concat(data.map((part) => bytesOf(part)));
  throw wrongType('the message', data, 'text, bytes, or a list of them');
}

function partOf(message: Uint8Array, offset: unknown, length: unknown): Uint8Array {
  const [from, count] = [check('offset', offset, message.length), check('length', length, message.length)];
  if (count > message.length - from) throw wrongNumber('length', count, `at most ${message.length - from}`);
  return message.subarray(from, from + count);
}

function check(name: string, value: unknown, most: number): number {
  if (typeof value !== 'number') throw wrongType(name, value, 'a number');
  if (Number.isInteger(value) && value >= 0 && value <= most) return value;
  throw wrongNumber(name, value, `an integer from 0 to ${most}`);
}
