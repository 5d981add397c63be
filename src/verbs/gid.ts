/**
 * GIDs and IP addresses. A RoCE v2 GID is an IPv6 address; an IPv4 address a.b.c.d is ::ffff:a.b.c.d
 * (InfiniBand specification, annex A17.4.3).
 */
import { isIP, isIPv4 } from 'node:net';
import { ipBytes, ipText } from '../link/address.js';

/** What comes before an IPv4 address in its GID. */
const MAPPED = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/** An entry of the device's GID table. */
export interface GidEntry {
  readonly index: number;
  /** The GID as text, e.g. `::ffff:10.0.0.1` or `fe80::1`. */
  readonly gid: string;
  /** The interface's address behind it, e.g. `10.0.0.1`. */
  readonly address: string;
  readonly type: 'RoCE v2';
  readonly linkLocal: boolean;
}

/** A GID table entry and why it was chosen. */
export interface GidChoice {
  readonly gid: string;
  readonly index: number;
  readonly reason: string;
}

/**
 * The 16 bytes of a GID, network order.
 * @param text an IPv4 address, an IPv6 address (a `%scope` and a `/length` are ignored), or 32 hexadecimal digits as the
 * stock tools exchange them
 * @throws TypeError when it is none of these
 */
export function gidBytes(text: string): Uint8Array {
  if (/^[0-9a-f]{32}$/i.test(text)) return Uint8Array.from(Buffer.from(text, 'hex'));
  const address = text.replace(/[%/].*$/, '');
  if (isIP(address) === 0)
    throw new TypeError(`'${text}' is no GID: expected an IPv4 or IPv6 address or 32 hexadecimal digits`);
  const ip = ipBytes(address);
  return ip.length === 16 ? ip : Uint8Array.from([...MAPPED, ...ip]);
}

/** 32 hexadecimal digits, as `ibv_rc_pingpong` and perftest exchange GIDs. */
export function gidToHex(gid: string | Uint8Array): string {
  return Buffer.from(typeof gid === 'string' ? gidBytes(gid) : gid).toString('hex');
}

/** The GID in the usual short text form: `::ffff:10.0.0.1` for IPv4, RFC 5952 otherwise. */
export function gidText(gid: string | Uint8Array): string {
  const bytes = typeof gid === 'string' ? gidBytes(gid) : gid;
  return isMapped(bytes) ? `::ffff:${bytes.subarray(12).join('.')}` : ipText(bytes);
}

/** The IP address of a GID as text: `10.0.0.1` or `fd00::1`. */
export function gidAddress(gid: string | Uint8Array): string {
  const bytes = typeof gid === 'string' ? gidBytes(gid) : gid;
  return isMapped(bytes) ? bytes.subarray(12).join('.') : ipText(bytes);
}

/** The GID stands for an IPv4 address. */
export function isMapped(bytes: Uint8Array): boolean {
  return MAPPED.every((byte, i) => bytes[i] === byte);
}

/** GID table of an interface: link-local addresses first, then IPv4, then other IPv6, each in the interface's order. */
export function gidTable(addresses: readonly string[]): GidEntry[] {
  const rank = (bytes: Uint8Array) => (isMapped(bytes) ? 1 : isLinkLocal(bytes) ? 0 : 2);
  return addresses
    .map(gidBytes)
    .sort((a, b) => rank(a) - rank(b))
    .map((bytes, index) => ({
      index,
      gid: gidText(bytes),
      address: gidAddress(bytes),
      type: 'RoCE v2',
      linkLocal: isLinkLocal(bytes),
    }));
}

/** The table after the interface's addresses have changed: what stays keeps its order, what is new comes behind it. */
export function changedGidTable(table: readonly GidEntry[], addresses: readonly string[]): GidEntry[] {
  const now = gidTable(addresses);
  const kept = table.filter(({ gid }) => now.some((entry) => entry.gid === gid));
  const added = now.filter(({ gid }) => !table.some((entry) => entry.gid === gid));
  return [...kept, ...added].map((entry, index) => ({ ...entry, index }));
}

/**
 * The table's best entry to reach a peer from, or the best one to hand out when the peer is not known yet.
 * Undefined: no entry can reach it.
 */
export function chooseGid(table: readonly GidEntry[], peer?: string): GidChoice | undefined {
  const choice = (entry: GidEntry | undefined, reason: string) =>
    entry && { gid: entry.gid, index: entry.index, reason };
  if (peer === undefined) {
    return (
      choice(
        table.find((entry) => !entry.linkLocal && isIPv4(entry.address)),
        'the first IPv4 address; every RoCE v2 peer speaks IPv4',
      ) ??
      choice(
        table.find((entry) => !entry.linkLocal),
        'the first IPv6 address with more than link scope; the interface has no IPv4 address',
      ) ??
      choice(table[0], 'a link-local address, the only kind that the interface has')
    );
  }
  const target = gidBytes(peer);
  const usable = table
    .filter((entry) => isMapped(gidBytes(entry.gid)) === isMapped(target) && entry.linkLocal === isLinkLocal(target))
    .map((entry) => ({ entry, bits: commonBits(gidBytes(entry.gid), target) - (isMapped(target) ? 96 : 0) }))
    .sort((a, b) => b.bits - a.bits);
  const best = usable[0];
  if (best === undefined) return undefined;
  const family = `${isLinkLocal(target) ? 'link-local ' : ''}${isMapped(target) ? 'IPv4' : 'IPv6'}`;
  const address = gidAddress(target);
  if (usable.length === 1) return choice(best.entry, `the only ${family} address, as ${address} is one`);
  return choice(best.entry, `${family} as ${address} is, and shares its first ${best.bits} bits, more than any other`);
}

/** fe80::/10, or 169.254.0.0/16 as an IPv4 address. */
function isLinkLocal(bytes: Uint8Array): boolean {
  if (isMapped(bytes)) return bytes[12] === 169 && bytes[13] === 254;
  return bytes[0] === 0xfe && ((bytes[1] as number) & 0xc0) === 0x80;
}

function commonBits(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < 16; i++) {
    const difference = (a[i] as number) ^ (b[i] as number);
    if (difference !== 0) return 8 * i + Math.clz32(difference) - 24;
  }
  return 128;
}
