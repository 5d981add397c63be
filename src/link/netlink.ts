/**
 * Writes and reads netlink messages (rtnetlink(7), generic netlink). Their numbers are in host byte order. This module
 * supports little-endian hosts only, as WebAssembly memory is little-endian.
 */
import { getSystemErrorName } from 'node:util';
import { native } from '../native.js';

/** Message types of rtnetlink. */
export const RTM = {
  NEWLINK: 16,
  GETLINK: 18,
  NEWADDR: 20,
  GETADDR: 22,
  NEWROUTE: 24,
  GETROUTE: 26,
  NEWNEIGH: 28,
  GETNEIGH: 30,
} as const;

/** Protocols of netlink(7). */
export const NETLINK = { ROUTE: 0, GENERIC: 16 } as const;

/** Request flags, without NLM_F_REQUEST, which every request has. */
export const NLM = { ACK: 0x4, DUMP: 0x300, CREATE: 0x400 } as const;

/** Address families. */
export const AF_INET = 2;
export const AF_INET6 = 10;

const NLMSG_ERROR = 2;
const NLMSG_DONE = 3;
const HEADER_BYTES = 16;

/** The kernel refused a request. */
export class NetlinkError extends Error {
  /** Name of the errno, `ENOENT` for instance. */
  readonly code: string;
  constructor(errno: number) {
    const code = getSystemErrorName(-Math.abs(errno));
    super(`netlink: ${code}`);
    this.code = code;
  }
}

/** One message of a reply. */
export interface NetlinkMessage {
  readonly type: number;
  /** The family's fixed header and the attributes. */
  readonly body: Uint8Array;
}

/** Attributes of a message by type. A nested attribute's value can be read with `attributesOf`. */
export type Attributes = ReadonlyMap<number, Uint8Array>;

/**
 * Sends a request and returns all messages of the reply. Takes microseconds: the kernel replies within the call.
 * @param header the family's fixed header (`rtmsg`, `ndmsg`, ...)
 * @param attributes type and value of each attribute
 * @throws NetlinkError if the kernel refuses the request
 */
export function netlinkRequest(
  type: number,
  flags: number,
  header: Uint8Array,
  attributes: [number, Uint8Array][] = [],
  protocol: number = NETLINK.ROUTE,
): NetlinkMessage[] {
  const parts = [header, ...attributes.map(([kind, value]) => attribute(kind, value))];
  const length = HEADER_BYTES + parts.reduce((sum, part) => sum + align(part.length), 0);
  const request = new Uint8Array(length);
  const view = new DataView(request.buffer);
  view.setUint32(0, length, true);
  view.setUint16(4, type, true);
  view.setUint16(6, flags | 1, true);
  let at = HEADER_BYTES;
  for (const part of parts) {
    request.set(part, at);
    at += align(part.length);
  }
  const reply = native().netlinkExchange(protocol, request);
  if (typeof reply === 'number') throw new NetlinkError(reply);
  return [...netlinkMessages(reply)];
}

/** Returns the attributes that follow a fixed header of `from` bytes. */
export function attributesOf(bytes: Uint8Array, from = 0): Attributes {
  const found = new Map<number, Uint8Array>();
  const view = viewOf(bytes);
  for (let at = from; at + 4 <= bytes.length; ) {
    const length = view.getUint16(at, true);
    if (length < 4) break;
    // The upper two bits are the flags NLA_F_NESTED and NLA_F_NET_BYTEORDER.
    found.set(view.getUint16(at + 2, true) & 0x3fff, bytes.subarray(at + 4, at + length));
    at += align(length);
  }
  return found;
}

/** Returns a view of the same bytes. */
export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Returns the 4 bytes of a number, little-endian. */
export function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}

/** Returns the number in an attribute of 2 or 4 bytes; undefined if there is no such attribute. */
export function numberIn(attributes: Attributes, kind: number): number | undefined {
  const bytes = attributes.get(kind);
  if (!bytes) return undefined;
  return bytes.length >= 4 ? viewOf(bytes).getUint32(0, true) : viewOf(bytes).getUint16(0, true);
}

/** Returns the text in an attribute without its final NUL; undefined if there is no such attribute. */
export function textIn(attributes: Attributes, kind: number): string | undefined {
  const bytes = attributes.get(kind);
  return bytes && Buffer.from(bytes).toString('utf8').replace(/\0.*$/s, '');
}

/** Reads the messages of a reply or notification. @throws NetlinkError if the kernel refuses the request */
export function* netlinkMessages(reply: Uint8Array): Generator<NetlinkMessage> {
  const view = viewOf(reply);
  for (let at = 0; at + HEADER_BYTES <= reply.length; ) {
    const length = view.getUint32(at, true);
    if (length < HEADER_BYTES || at + length > reply.length) return;
    const type = view.getUint16(at + 4, true);
    if (type === NLMSG_DONE) return;
    if (type === NLMSG_ERROR) {
      const errno = view.getInt32(at + HEADER_BYTES, true);
      if (errno !== 0) throw new NetlinkError(errno);
      return;
    }
    yield { type, body: reply.subarray(at + HEADER_BYTES, at + length) };
    at += align(length);
  }
}

function attribute(kind: number, value: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(4 + value.length);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, bytes.length, true);
  view.setUint16(2, kind, true);
  bytes.set(value, 4);
  return bytes;
}

function align(length: number): number {
  return (length + 3) & ~3;
}
