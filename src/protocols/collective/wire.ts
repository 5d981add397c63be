/**
 * Messages of ranks. All numbers are in network byte order.
 *
 * A connection begins with a Hello in the private data of REQ and REP. After that each message has immediate data:
 *
 *     bits 31:28  kind      bits 27:24  lane      bits 23:16  number of the call, modulo 256      bits 15:0  its hash
 *
 * - CREDIT, an RDMA WRITE of 16 bytes into the FIFO of the sender of data: where the next data of the lane go.
 * - DATA, an RDMA WRITE to where the oldest credit of the lane says.
 * - EAGER, a SEND of short data, which needs no credit.
 * - CONTROL, a SEND of JSON text.
 *
 * Both ends know the elements of a call from their arguments. So data need no header, and the hash shows ranks that
 * make different calls.
 */
import { createHash } from 'node:crypto';
import { hasAddresses } from '../../transport/peermemory.js';

/** Lanes of a connection. Each carries one slice of an array after another, so that slices overlap. */
export const LANES = 4;
/** Slots of a lane: data that may be under way to a rank. */
export const DEPTH = 2;
/** Most bytes of a slice, for which a slot has room. */
export const SLOT_BYTES = 262_144;
/** Most bytes of short data. */
export const EAGER_BYTES = 65_536;
/** Most bytes of a control message. */
export const CONTROL_BYTES = 4096;
/** Bytes of a credit. */
export const CREDIT_BYTES = 16;

export enum Kind {
  CREDIT = 1,
  DATA,
  EAGER,
  CONTROL,
}

/** Memory of the peer, for data that we send. */
export interface Credit {
  readonly addr: bigint;
  readonly rkey: number;
  /** Bytes that the peer expects. */
  readonly bytes: number;
}

export function encodeCredit({ addr, rkey, bytes }: Credit): Buffer {
  const entry = Buffer.alloc(CREDIT_BYTES);
  entry.writeBigUInt64BE(addr, 0);
  entry.writeUInt32BE(rkey, 8);
  entry.writeUInt32BE(bytes, 12);
  return entry;
}

/** @param at offset of the credit @returns undefined for memory that ends beyond the last address */
export function decodeCredit(memory: Buffer, at: number): Credit | undefined {
  const [addr, bytes] = [memory.readBigUInt64BE(at), memory.readUInt32BE(at + 12)];
  return hasAddresses(addr, bytes) ? { addr, rkey: memory.readUInt32BE(at + 8), bytes } : undefined;
}

/** @param tag number of the call and its hash, 24 bits */
export function immediate(kind: Kind, lane: number, tag: number): number {
  return ((kind << 28) | (lane << 24) | tag) >>> 0;
}

export function splitImmediate(value: number): { kind: number; lane: number; tag: number } {
  return { kind: value >>> 28, lane: (value >>> 24) & 0xf, tag: value & 0xffffff };
}

/** Returns the tag of a call. @param text all that must be the same at each rank */
export function callTag(sequence: number, text: string): number {
  // FNV-1a
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return ((sequence & 0xff) << 16) | ((hash ^ (hash >>> 16)) & 0xffff);
}

/** The number of the call that a tag is of, modulo 256. */
export const sequenceOf = (tag: number): number => tag >>> 16;

const MAGIC = 0x77724363;
const VERSION = 1;
const GROUP_BYTES = 16;
const HELLO_BYTES = 44;

/** The private data of one end, in its request or reply. */
export interface Hello {
  readonly rank: number;
  readonly size: number;
  /** Port on which it listens. */
  readonly port: number;
  /** Name of the group. */
  readonly group: string;
  /** Its FIFO, for our credits: address and key. 0: it takes no data from us. */
  readonly fifoAddr: bigint;
  readonly fifoRkey: number;
}

export function encodeHello({ rank, size, port, group, fifoAddr, fifoRkey }: Hello): Buffer {
  const hello = Buffer.alloc(HELLO_BYTES);
  hello.writeUInt32BE(MAGIC, 0);
  hello.writeUInt16BE(VERSION, 4);
  hello.writeUInt16BE(rank, 6);
  hello.writeUInt16BE(size, 8);
  hello.writeUInt16BE(port, 10);
  hello.writeBigUInt64BE(fifoAddr, 12);
  hello.writeUInt32BE(fifoRkey, 20);
  groupHash(group).copy(hello, 24);
  return hello;
}

/**
 * @param expected `size` and `group`, which are the same at each rank
 * @returns the reason why it does not fit, or its content
 */
export function decodeHello(
  data: Uint8Array,
  expected: { readonly size: number; readonly group: string },
): string | Omit<Hello, 'group'> {
  const hello = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  if (hello.length < HELLO_BYTES || hello.readUInt32BE(0) !== MAGIC) return 'this is no rank of a communicator';
  const version = hello.readUInt16BE(4);
  if (version !== VERSION) return `the protocol has version ${version} at one rank, ${VERSION} at another`;
  const [rank, size] = [hello.readUInt16BE(6), hello.readUInt16BE(8)];
  if (!groupHash(expected.group).equals(hello.subarray(24, 24 + GROUP_BYTES))) return 'the groups have different names';
  if (size !== expected.size) return `size is ${size} at one rank, ${expected.size} at another`;
  if (rank >= size) return `rank is ${rank}, must be below ${size}`;
  const [port, fifoAddr] = [hello.readUInt16BE(10), hello.readBigUInt64BE(12)];
  if (!hasAddresses(fifoAddr, LANES * DEPTH * CREDIT_BYTES))
    return `the FIFO of rank ${rank} is at address 0x${fifoAddr.toString(16)}, and ends beyond 2^64`;
  return { rank, size, port, fifoAddr, fifoRkey: hello.readUInt32BE(20) };
}

const groupHash = (group: string): Buffer => createHash('sha256').update(group).digest().subarray(0, GROUP_BYTES);

/**
 * A control message. `endpoint`: rank 0 says where a rank listens. `abort`: the communicator ends because of a rank.
 * `leave`: the sender closes the communicator.
 */
export type ControlMessage =
  | { readonly type: 'endpoint'; readonly rank: number; readonly host: string; readonly port: number }
  | { readonly type: 'abort'; readonly rank: number; readonly code: string; readonly text: string }
  | { readonly type: 'leave' };

/** Longest text of a control message, in characters, which may have three bytes each. */
const MAX_TEXT = 1000;

export function encodeControl(message: ControlMessage): Buffer {
  const fits = message.type === 'abort' ? { ...message, text: message.text.slice(0, MAX_TEXT) } : message;
  return Buffer.from(JSON.stringify(fits));
}

const isPort = (port: unknown): port is number => Number.isInteger(port) && Number(port) >= 1 && Number(port) <= 65535;

/** @returns undefined for what is no control message */
export function decodeControl(bytes: Buffer): ControlMessage | undefined {
  try {
    const message = JSON.parse(bytes.toString()) as Partial<Record<string, unknown>> | null;
    const { type, rank, host, port, code, text } = message ?? {};
    if (type === 'leave') return { type };
    if (!Number.isInteger(rank)) return undefined;
    if (type === 'endpoint' && typeof host === 'string' && isPort(port))
      return { type, rank: rank as number, host, port };
    if (type === 'abort' && typeof code === 'string' && typeof text === 'string')
      return { type, rank: rank as number, code, text };
  } catch {
    // no JSON
  }
  return undefined;
}
