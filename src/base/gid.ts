/**
 * GIDs as text and as bytes. A RoCE v2 GID is an IPv6 address; an IPv4 address a.b.c.d maps to ::ffff:a.b.c.d
 * (IBTA annex A17.4.3).
 */

import { isIP } from 'node:net';
import { invalidValue } from '../errors.js';
import { ipBytes, ipText, ipv4Text } from './address.js';
import { remembered, rememberedOfBytes } from './remembered.js';

/** Prefix of an IPv4-mapped address. */
const IPV4_MAPPED_PREFIX = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/** A GID in all its forms. */
interface Gid {
  readonly bytes: Uint8Array;
  /** Its usual text. */
  readonly text: string;
  /** As an IP address. */
  readonly address: string;
}

/**
 * Returns the 16 bytes of a GID, in network byte order.
 * @param text an IPv4 address, an IPv6 address (a `%scope` and a `/length` are ignored), or 32 hexadecimal digits as
 * ibv_rc_pingpong and perftest exchange them
 * @throws TypeError when it is none of these
 */
export function gidBytes(text: string): Uint8Array {
  return gidOf(text).bytes.slice();
}

/**
 * Returns a GID as 32 hexadecimal digits, as `ibv_rc_pingpong` and perftest exchange it.
 * @param gid GID or IP address as text, or 16 bytes in network byte order
 * @throws TypeError when the text is no GID
 */
export function gidToHex(gid: string | Uint8Array): string {
  return Buffer.from(typeof gid === 'string' ? gidBytes(gid) : gid).toString('hex');
}

/**
 * Returns a GID in its usual text form: `::ffff:10.0.0.1` for IPv4, RFC 5952 otherwise.
 * @param gid GID or IP address as text, or 16 bytes in network byte order
 * @throws TypeError when the text is no GID
 */
export function gidText(gid: string | Uint8Array): string {
  return (typeof gid === 'string' ? gidOf(gid) : formsOf(gid)).text;
}

/**
 * Returns the IP address of a GID as text: `10.0.0.1` or `fd00::1`.
 * @param gid GID or IP address as text, or 16 bytes in network byte order
 * @throws TypeError when the text is no GID
 */
export function gidAddress(gid: string | Uint8Array): string {
  return (typeof gid === 'string' ? gidOf(gid) : formsOf(gid)).address;
}

/** Whether a GID is an IPv4-mapped address. */
export function isIpv4Mapped(bytes: Uint8Array): boolean {
  return IPV4_MAPPED_PREFIX.every((byte, i) => bytes[i] === byte);
}

const gidOf = remembered((text) => formsOf(parseGid(text)));

const formsOf = rememberedOfBytes((bytes): Gid => {
  const isIpv4 = isIpv4Mapped(bytes);
  const address = isIpv4 ? ipv4Text(bytes, 12) : ipText(bytes);
  return { bytes, address, text: isIpv4 ? `::ffff:${address}` : address };
});

/** @throws TypeError for a text that is no GID */
function parseGid(text: string): Uint8Array {
  if (/^[0-9a-f]{32}$/i.test(text)) return Uint8Array.from(Buffer.from(text, 'hex'));
  const address = text.replace(/[%/].*$/, '');
  if (isIP(address) === 0)
    throw invalidValue(`'${text}' is no GID: must be an IPv4 or IPv6 address or 32 hexadecimal digits`);
  const ip = ipBytes(address);
  return ip.length === 16 ? ip : Uint8Array.from([...IPV4_MAPPED_PREFIX, ...ip]);
}
