/**
 * netlink messages (rtnetlink(7), generic netlink), written and read. Their numbers are in host byte order; this module, like
 * WebAssembly memory, is for little-endian hosts.
 */
import { getSystemErrorName } from 'node:util';
import { native } from '../native.js';

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

/** Flags beside NLM_F_REQUEST. */
export const NLM = { ACK: 0x4, DUMP: 0x300, CREATE: 0x400 } as const;

export const AF_INET = 2;
export const AF_INET6 = 10;

const NLMSG_ERROR = 2;
const NLMSG_DONE = 3;
const HEADER_BYTES = 16;

/** The kernel refused a request. */
export class NetlinkError extends Error {
  /** errno's name, `ENOENT` for instance */
  readonly code: string;
  constructor(errno: number) {
    const code = getSystemErrorName(-Math.abs(errno));
    super(`netlink: ${code}`);
    this.code = code;
  }
}

export interface NetlinkMessage {
  readonly type: number;
  /** The family's header and its attributes. */
  readonly body: Uint8Array;
}

export type Attributes = ReadonlyMap<number, Uint8Array>;

/**
 * Asks the kernel and returns its whole answer. Takes microseconds: the kernel answers before the call returns.
 * @param header the family's fixed header (`rtmsg`, `ndmsg`, ...)
 * @throws NetlinkError
 */
export function ask(
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
  const answer = native().netlinkExchange(protocol, request);
  if (typeof answer === 'number') throw new NetlinkError(answer);
  return [...messages(answer)];
}

/** Attributes that follow a fixed header of `from` bytes. A nested attribute is read the same way. */
export function attributesOf(bytes: Uint8Array, from = 0): Attributes {
  const found = new Map<number, Uint8Array>();
  const view = viewOf(bytes);
  for (let at = from; at + 4 <= bytes.length; ) {
    const length = view.getUint16(at, true);
    if (length < 4) break;
    // The upper two bits say nested and network byte order.
    found.set(view.getUint16(at + 2, true) & 0x3fff, bytes.subarray(at + 4, at + length));
    at += align(length);
  }
  return found;
}

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

export function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}

/** @returns the number in an attribute, or undefined without the attribute */
export function numberIn(attributes: Attributes, kind: number): number | undefined {
  const bytes = attributes.get(kind);
  if (!bytes) return undefined;
  return bytes.length >= 4 ? viewOf(bytes).getUint32(0, true) : viewOf(bytes).getUint16(0, true);
}

/** @returns the text in an attribute, without its final NUL */
export function textIn(attributes: Attributes, kind: number): string | undefined {
  const bytes = attributes.get(kind);
  return bytes && Buffer.from(bytes).toString('utf8').replace(/\0.*$/s, '');
}

function* messages(answer: Uint8Array): Generator<NetlinkMessage> {
  const view = viewOf(answer);
  for (let at = 0; at + HEADER_BYTES <= answer.length; ) {
    const length = view.getUint32(at, true);
    if (length < HEADER_BYTES || at + length > answer.length) return;
    const type = view.getUint16(at + 4, true);
    if (type === NLMSG_DONE) return;
    if (type === NLMSG_ERROR) {
      const errno = view.getInt32(at + HEADER_BYTES, true);
      if (errno !== 0) throw new NetlinkError(errno);
      return;
    }
    yield { type, body: answer.subarray(at + HEADER_BYTES, at + length) };
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
