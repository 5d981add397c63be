/** The GID table of a device, and the choice of an entry for a peer. */

import { isIPv4 } from 'node:net';
import { isLinkLocal } from '../../base/address.js';
import { gidAddress, gidBytes, gidText, isIpv4Mapped } from '../../base/gid.js';

/** An entry of the device's GID table. */
export interface GidEntry {
  /** Index in the table. */
  readonly index: number;
  /** The GID as text, e.g. `::ffff:10.0.0.1` or `fe80::1`. */
  readonly gid: string;
  /** The interface's IP address of this GID, e.g. `10.0.0.1`. */
  readonly address: string;
  /** GID type; always RoCE v2. */
  readonly type: 'RoCE v2';
  /** Whether the address is link-local: fe80::/10 or 169.254.0.0/16. */
  readonly linkLocal: boolean;
}

/** A chosen GID table entry, from `device.chooseGid`. */
export interface GidChoice {
  /** The GID as text. */
  readonly gid: string;
  /** Its index in the GID table. */
  readonly index: number;
  /** The reason for the choice, as text. */
  readonly reason: string;
}

/**
 * Builds the GID table of an interface: link-local addresses, then IPv4, then other IPv6, each in the interface's
 * order.
 */
export function gidTable(addresses: readonly string[]): GidEntry[] {
  const rank = (bytes: Uint8Array) => (isIpv4Mapped(bytes) ? 1 : isLinkLocalGid(bytes) ? 0 : 2);
  return addresses
    .map(gidBytes)
    .sort((a, b) => rank(a) - rank(b))
    .map((bytes, index) => ({
      index,
      gid: gidText(bytes),
      address: gidAddress(bytes),
      type: 'RoCE v2',
      linkLocal: isLinkLocalGid(bytes),
    }));
}

/**
 * Updates the table after the interface's addresses have changed. Remaining entries keep their order; new ones follow.
 */
export function updateGidTable(table: readonly GidEntry[], addresses: readonly string[]): GidEntry[] {
  const now = gidTable(addresses);
  const kept = table.filter(({ gid }) => now.some((entry) => entry.gid === gid));
  const added = now.filter(({ gid }) => !table.some((entry) => entry.gid === gid));
  return [...kept, ...added].map((entry, index) => ({ ...entry, index }));
}

/**
 * Returns the best entry to reach a peer from, or the best one to advertise when the peer is not known yet. Undefined
 * when no entry can reach the peer.
 */
export function chooseGid(table: readonly GidEntry[], peer?: string): GidChoice | undefined {
  const choice = (entry: GidEntry | undefined, reason: string) =>
    entry && { gid: entry.gid, index: entry.index, reason };
  if (peer === undefined) {
    return (
      choice(
        table.find((entry) => !entry.linkLocal && isIPv4(entry.address)),
        'the first IPv4 address; every RoCE v2 peer supports IPv4',
      ) ??
      choice(
        table.find((entry) => !entry.linkLocal),
        'the first IPv6 address that is not link-local; the interface has no IPv4 address',
      ) ??
      choice(table[0], 'a link-local address, as the interface has no other')
    );
  }
  const target = gidBytes(peer);
  const usable = table
    .filter(
      (entry) =>
        isIpv4Mapped(gidBytes(entry.gid)) === isIpv4Mapped(target) && entry.linkLocal === isLinkLocalGid(target),
    )
    .map((entry) => ({
      entry,
      bits: commonPrefixLength(gidBytes(entry.gid), target) - (isIpv4Mapped(target) ? 96 : 0),
    }))
    .sort((a, b) => b.bits - a.bits);
  const best = usable[0];
  if (best === undefined) return undefined;
  const family = `${isLinkLocalGid(target) ? 'link-local ' : ''}${isIpv4Mapped(target) ? 'IPv4' : 'IPv6'}`;
  const address = gidAddress(target);
  if (usable.length === 1) return choice(best.entry, `the only ${family} address, the family of ${address}`);
  return choice(best.entry, `${family} like ${address}, with the longest common prefix: ${best.bits} bits`);
}

/** Whether a GID is in fe80::/10, or in 169.254.0.0/16 for IPv4. */
const isLinkLocalGid = (bytes: Uint8Array): boolean =>
  isIpv4Mapped(bytes) ? bytes[12] === 169 && bytes[13] === 254 : isLinkLocal(bytes);

function commonPrefixLength(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < 16; i++) {
    const difference = (a[i] as number) ^ (b[i] as number);
    if (difference !== 0) return 8 * i + Math.clz32(difference) - 24;
  }
  return 128;
}
