/** Resolved addresses: a peer's address with its route and MAC address, ready for the card. */

import { type InspectOptionsStylized, inspect } from 'node:util';
import { ipBytes as addressBytes, isMulticast, macText, multicastMac } from '../../base/address.js';
import { gidAddress, gidBytes, gidText, isIpv4Mapped } from '../../base/gid.js';
import { anything, type Checks, checkInteger, checkOptions, nested, wrongType } from '../../base/options.js';
import type { Card } from '../../device/card.js';
import { AvOffset, LIMITS } from '../../device/codes.js';
import { VerbsError } from '../../errors.js';
import type { Link, Resolved } from '../../link/link.js';
import { checkZone } from '../../link/zones.js';
import { inspectAs } from '../diagnose/describe.js';
import type { GidEntry } from './gid.js';

/** Destination of packets (ibv_ah_attr). RoCE addresses always have a global route. */
export interface AhAttr {
  /** Global route: destination GID and IP header fields. */
  readonly grh: GlobalRoute;
  /**
   * Service level, 0..7: in RoCE the priority (PCP) of the VLAN tag, where the route leaves by a VLAN. Frames without a
   * tag have none. Default 0.
   */
  readonly sl?: number;
}

/** Global route of an address (ibv_global_route). */
export interface GlobalRoute {
  /** The peer's GID as text, an IP address, or 32 hexadecimal digits. */
  readonly dgid: string;
  /** Index of our GID in `device.gids`. Default: chosen by `device.chooseGid(dgid)`. */
  readonly sgidIndex?: number;
  /** TTL or IPv6 hop limit, 1..255. Default: the route's, or 64. */
  readonly hopLimit?: number;
  /** IPv4 TOS or IPv6 traffic class: DSCP << 2 | ECN. Default 0. */
  readonly trafficClass?: number;
  /** Flow label, 20 bits, which decides the UDP source port; 0 = port from the queue pair numbers. Default 0. */
  readonly flowLabel?: number;
}

/** The names of its attributes; `resolveAddress` checks the values. */
const ROUTE_CHECKS: Checks<GlobalRoute> = {
  dgid: anything,
  sgidIndex: anything,
  hopLimit: anything,
  trafficClass: anything,
  flowLabel: anything,
};

const UNTAGGED = 0xffffffff;
/** TTL or hop limit where neither the program nor the route has one. */
export const DEFAULT_HOP_LIMIT = 64;
/** The priority (PCP) is in the upper three bits of the tag control information (IEEE 802.1Q). */
const PCP_SHIFT = 13;

/**
 * A peer's resolved address, from `device.resolveAddress`, for `qp.modify({ahAttr})` and `pd.createAh`. It uses no
 * memory of the card. Datagrams need an `AddressHandle` made from it.
 *
 * @example
 * ```ts
 * const address = await device.resolveAddress({ grh: { dgid: '10.0.0.2', trafficClass: 0x20 } });
 * console.log(address.destination, address.pathMtu);
 * const ah = await pd.createAh(address);
 * console.log(ah.maxMessage);
 * ```
 */
export class ResolvedAddress {
  /** The peer's IP address, as text. */
  readonly destination: string;
  /** Our IP address, as text. */
  readonly source: string;

  /** @internal Use `device.resolveAddress`. */
  constructor(
    /** The peer's GID, as text. */
    readonly dgid: string,
    /** Index of our GID in `device.gids`. */
    readonly sgidIndex: number,
    source: string,
    /** MAC address of the next hop, 6 bytes. */
    readonly destMac: Uint8Array,
    /** MAC address of the interface, 6 bytes. */
    readonly sourceMac: Uint8Array,
    /** VLAN tag control information, 16 bits. Undefined = untagged. */
    readonly vlanTci: number | undefined,
    /** TTL or IPv6 hop limit, 1..255. */
    readonly hopLimit: number,
    /** IPv4 TOS or IPv6 traffic class: DSCP << 2 | ECN. */
    readonly trafficClass: number,
    /** Flow label, 20 bits; 0 = UDP source port from the queue pair numbers. */
    readonly flowLabel: number,
    /** MTU of the route: bytes of an IP packet. Undefined if the kernel does not know it. */
    readonly pathMtu: number | undefined,
    /** Service level, 0..7; the priority in `vlanTci`, if there is a tag. */
    readonly sl: number,
    /** @internal Whether the kernel was asked for the path, which may change: not for senders and groups. */
    readonly isLookedUp: boolean,
  ) {
    this.destination = gidAddress(dgid);
    this.source = source;
  }

  /** Returns a short description as plain data, for `JSON.stringify` and `console.log`. */
  toJSON(): Record<string, unknown> {
    const { destMac, sourceMac, isLookedUp, ...rest } = this;
    return { ...rest, destMac: macText(destMac), sourceMac: macText(sourceMac) };
  }

  /** @internal */
  [inspect.custom](depth: number, options: InspectOptionsStylized): string {
    return inspectAs(this, depth, options);
  }

  /**
   * @internal Returns the address by another next hop.
   * @param sourceMac MAC address of the interface
   * @returns this address if nothing is different
   */
  by({ destMac, vlanTci }: Resolved, sourceMac: Uint8Array): ResolvedAddress {
    const tci = vlanTci === undefined ? undefined : vlanTci | (this.sl << PCP_SHIFT);
    const isSame = (a: Uint8Array, b: Uint8Array) => Buffer.compare(a, b) === 0;
    if (isSame(destMac, this.destMac) && isSame(sourceMac, this.sourceMac) && tci === this.vlanTci) return this;
    const { dgid, sgidIndex, source, hopLimit, trafficClass, flowLabel, pathMtu, sl, isLookedUp } = this;
    return new ResolvedAddress(
      ...([dgid, sgidIndex, source, destMac, sourceMac, tci, hopLimit] as const),
      ...([trafficClass, flowLabel, pathMtu, sl, isLookedUp] as const),
    );
  }

  /** @internal Writes the address vector to the card's scratch memory. */
  write(card: Card, sourcePort: number): void {
    const { bytes, exports, u32 } = card;
    const at = exports.scratch();
    const word = (offset: number, value: number) => {
      u32[(at + offset) >>> 2] = value;
    };
    const destination = gidBytes(this.dgid);
    const mapped = isIpv4Mapped(destination);
    bytes.set(this.destMac, at + AvOffset.DEST_MAC);
    bytes.set(this.sourceMac, at + AvOffset.SOURCE_MAC);
    word(AvOffset.VLAN_TCI, this.vlanTci ?? UNTAGGED);
    word(AvOffset.IP_VERSION, mapped ? 4 : 6);
    bytes.set(ipBytes(gidBytes(this.source), mapped), at + AvOffset.SOURCE_IP);
    bytes.set(ipBytes(destination, mapped), at + AvOffset.DEST_IP);
    word(AvOffset.TRAFFIC_CLASS, this.trafficClass);
    word(AvOffset.FLOW_LABEL, this.flowLabel);
    word(AvOffset.HOP_LIMIT, this.hopLimit);
    word(AvOffset.SOURCE_PORT, sourcePort);
  }
}

/**
 * Resolves an address.
 * @throws TypeError, RangeError for a wrong attribute; VerbsError EINVAL, EHOSTUNREACH; EADDRNOTAVAIL for the zone of
 * another interface
 */
export async function resolveAddress(
  attr: AhAttr,
  gids: readonly GidEntry[],
  chooseGid: (peer: string) => { index: number },
  link: Link,
): Promise<ResolvedAddress> {
  const grh = attr?.grh;
  if (typeof grh?.dgid !== 'string') throw wrongType('ahAttr.grh.dgid', grh?.dgid, 'a GID or IP address as text');
  checkOptions('ahAttr', attr, { grh: nested(ROUTE_CHECKS), sl: anything }, 'ahAttr.');
  const dgid = gidText(grh.dgid);
  checkZone(grh.dgid, link.interface);
  const trafficClass = checkInteger('ahAttr.grh.trafficClass', grh.trafficClass ?? 0, 0, 255);
  const flowLabel = checkInteger('ahAttr.grh.flowLabel', grh.flowLabel ?? 0, 0, 0xfffff);
  const hopLimit = grh.hopLimit === undefined ? undefined : checkInteger('ahAttr.grh.hopLimit', grh.hopLimit, 1, 255);
  const sl = checkInteger('ahAttr.sl', attr.sl ?? 0, 0, 7);
  const index = grh.sgidIndex ?? chooseGid(dgid).index;
  checkInteger('ahAttr.grh.sgidIndex', index, 0, gids.length - 1);
  const source = gids[index] as GidEntry;
  if (isIpv4Mapped(gidBytes(source.gid)) !== isIpv4Mapped(gidBytes(dgid)))
    throw new VerbsError(
      'EINVAL',
      `gid ${source.gid} (index ${index}) cannot reach ${dgid}: one is IPv4, the other IPv6`,
    );
  const found = await resolveDestination(gidAddress(dgid), source.address, link);
  return new ResolvedAddress(
    dgid,
    index,
    source.address,
    found.destMac,
    link.interface.mac,
    found.vlanTci === undefined ? undefined : found.vlanTci | (sl << PCP_SHIFT),
    hopLimit ?? found.hopLimit ?? DEFAULT_HOP_LIMIT,
    trafficClass,
    flowLabel,
    found.pathMtu,
    sl,
    !isMulticast(addressBytes(gidAddress(dgid))),
  );
}

/**
 * @internal Returns the address of a datagram's sender, reached through the neighbour that has sent the frame. Nothing
 * is looked up, so it costs the same whatever address the datagram names.
 * @param source our GID that it was sent to, with its index
 */
export function addressOfSender(
  dgid: string,
  source: GidEntry,
  neighbour: { readonly mac: Uint8Array; readonly vlanTci: number | undefined },
  link: Link,
): ResolvedAddress {
  const { mac, vlanTci } = neighbour;
  const own = link.interface.mac;
  return new ResolvedAddress(
    gidText(dgid),
    source.index,
    source.address,
    mac,
    own,
    vlanTci,
    DEFAULT_HOP_LIMIT,
    0,
    0,
    undefined,
    0,
    false,
  );
}

/**
 * Resolves the next hop. The MAC address of a multicast group follows from its address, without a look-up. Its frames
 * leave untagged by the interface of the source address, as the kernel's do; a group on a VLAN needs a device on the
 * VLAN's interface.
 */
async function resolveDestination(destination: string, source: string, link: Link): Promise<Resolved> {
  const bytes = addressBytes(destination);
  return isMulticast(bytes) ? { destMac: multicastMac(bytes) } : link.resolve(destination, source);
}

/** Returns the largest path MTU that fits IP packets of `ipMtu` bytes; 0 = not even 256. Same rule as Linux rxe. */
export function maxPathMtu(ipMtu: number): number {
  for (let mtu = LIMITS.maxMtu; mtu >= 256; mtu /= 2) if (mtu <= ipMtu - 80) return mtu;
  return 0;
}

/**
 * @internal Refuses path MTUs that the interface or the route cannot carry, as such packets would be lost silently.
 * @throws VerbsError EINVAL
 */
export function checkPathMtu(
  { activeMtu, interfaceMtu }: { readonly activeMtu: number; readonly interfaceMtu: number },
  pathMtu: number,
  address: ResolvedAddress | undefined,
): void {
  if (pathMtu > activeMtu)
    throw new VerbsError(
      'EINVAL',
      `pathMtu is ${pathMtu}, must be at most the port's active MTU ${activeMtu} (interface MTU ${interfaceMtu})`,
    );
  if (address?.pathMtu !== undefined && pathMtu > maxPathMtu(address.pathMtu))
    throw new VerbsError(
      'EINVAL',
      `pathMtu is ${pathMtu}, must be at most ${maxPathMtu(address.pathMtu)} for the route to ${address.destination} with MTU ${address.pathMtu}`,
    );
}

function ipBytes(gid: Uint8Array, mapped: boolean): Uint8Array {
  if (!mapped) return gid;
  const field = new Uint8Array(16);
  field.set(gid.subarray(12));
  return field;
}
