/** Converts IP and MAC addresses between text and bytes (network byte order). */

import { isIPv4, isIPv6 } from 'node:net';
import { invalidType, invalidValue } from '../errors.js';
import { remembered, rememberedOfBytes } from './remembered.js';

/**
 * Returns the bytes of an IP address.
 * @param text an IPv4 or IPv6 address; a zone (`%eth0`) is ignored
 * @returns 4 or 16 bytes
 * @throws TypeError if the text is not an IP address
 */
export function ipBytes(text: string): Uint8Array {
  return parsedBytes(text).slice();
}

const parsedBytes = remembered((text) => {
  const address = text.replace(/%.*$/, '');
  if (isIPv4(address)) return Uint8Array.from(address.split('.'), Number);
  if (isIPv6(address)) return ipv6Bytes(address);
  throw invalidValue(`'${text}' is not an IP address`);
});

/**
 * Returns the text of an IP address. IPv6 is abbreviated as in RFC 5952: the longest sequence of at least two zero
 * groups becomes `::`.
 * @param bytes 4 or 16 bytes
 * @throws TypeError for another number of bytes
 */
export function ipText(bytes: Uint8Array): string {
  if (bytes.length === 4) return ipv4Text(bytes, 0);
  if (bytes.length !== 16) throw invalidType(`an IP address has 4 or 16 bytes, not ${bytes.length}`);
  return ipv6Text(bytes);
}

const ipv6Text = rememberedOfBytes((bytes) => {
  const groups = Array.from({ length: 8 }, (_, i) =>
    (((bytes[2 * i] as number) << 8) | (bytes[2 * i + 1] as number)).toString(16),
  );
  const text = groups.join(':');
  const zeros = text.match(/(?<![^:])0(:0)+(?![^:])/g) ?? [];
  const longest = zeros.reduce((a, b) => (b.length > a.length ? b : a), '');
  if (longest === '') return text;
  const at = text.search(new RegExp(`(?<![^:])${longest}(?![^:])`));
  return `${text.slice(0, at).replace(/:$/, '')}::${text.slice(at + longest.length).replace(/^:/, '')}`;
});

/** Returns the text of the IPv4 address at an offset. */
export function ipv4Text(bytes: Uint8Array, at: number): string {
  return `${bytes[at]}.${bytes[at + 1]}.${bytes[at + 2]}.${bytes[at + 3]}`;
}

/** Returns whether two texts are the same IP address. @throws TypeError if one is not an IP address */
export function sameIp(a: string, b: string): boolean {
  return a === b || ipText(ipBytes(a)) === ipText(ipBytes(b));
}

/** Returns whether a local address means all of them: `::`, `0.0.0.0`, or none. */
export function isWildcard(address: unknown): address is undefined | '::' | '0.0.0.0' {
  return address === undefined || address === '::' || address === '0.0.0.0';
}

/** Returns whether an address is in fe80::/10. */
export function isLinkLocal(address: Uint8Array): boolean {
  return address.length === 16 && address[0] === 0xfe && ((address[1] as number) & 0xc0) === 0x80;
}

/** Returns whether an address is in 224.0.0.0/4 or ff00::/8. */
export function isMulticast(address: Uint8Array): boolean {
  return address.length === 4 ? (address[0] as number) >> 4 === 14 : address[0] === 0xff;
}

/**
 * Returns the MAC address of a multicast group: 01:00:5e and the low 23 bits (RFC 1112), or for IPv6 33:33 and the low
 * 32 bits (RFC 2464).
 */
export function multicastMac(address: Uint8Array): Uint8Array {
  const [a = 0, b = 0, c = 0, d = 0] = address.subarray(-4);
  return address.length === 4 ? Uint8Array.of(1, 0, 0x5e, b & 0x7f, c, d) : Uint8Array.of(0x33, 0x33, a, b, c, d);
}

/** Returns the 6 bytes of a MAC address such as `02:00:00:00:00:01`. @throws TypeError if the text is none */
export function macBytes(text: string): Uint8Array {
  if (!/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/i.test(text)) throw invalidValue(`'${text}' is not a MAC address`);
  return Uint8Array.from(text.split(':'), (byte) => Number.parseInt(byte, 16));
}

/** Returns the bytes of a MAC address from the number whose six bytes they are, the first byte lowest. */
export function macOfNumber(number: number): Uint8Array {
  const [low, high] = [number >>> 0, Math.floor(number / 2 ** 32)];
  return Uint8Array.of(low, low >>> 8, low >>> 16, low >>> 24, high, high >>> 8);
}

/** Returns the text of a MAC address, `02:00:00:00:00:01` for instance. */
export function macText(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join(':');
}

function ipv6Bytes(address: string): Uint8Array {
  // An IPv4 address at the end stands for two groups.
  const text = address.replace(/[^:]*\..*$/, (v4) => {
    const [a, b, c, d] = Array.from(ipBytes(v4), (byte) => byte.toString(16).padStart(2, '0'));
    return `${a}${b}:${c}${d}`;
  });
  const [head = '', tail] = text.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const groups = [...before, ...Array(8 - before.length - after.length).fill('0'), ...after];
  return Uint8Array.from(
    groups.flatMap((group) => [Number.parseInt(group, 16) >> 8, Number.parseInt(group, 16) & 255]),
  );
}
