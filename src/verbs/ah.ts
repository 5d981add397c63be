/** Address handles: a peer's address, looked up and ready for the card. */

import type { Card } from '../device/card.js';
import { AvOffset, LIMITS } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import { ipBytes as addressBytes, isMulticast, multicastMac } from '../link/address.js';
import type { Link, Resolved } from '../link/link.js';
import { checkInteger, show } from './check.js';
import type { Device } from './context.js';
import { type GidEntry, gidAddress, gidBytes, gidText, isMapped } from './gid.js';

/** Where packets go (ibv_ah_attr; RoCE always has a global route). */
export interface AhAttr {
  readonly grh: GlobalRoute;
}

export interface GlobalRoute {
  /** The peer's GID: text, an IP address, or 32 hexadecimal digits. */
  readonly dgid: string;
  /** Our own GID: index in `device.gids`. Default: chosen by `device.chooseGid(dgid)`. */
  readonly sgidIndex?: number;
  /** TTL or IPv6 hop limit, 1..255. Default: the route's, or 64. */
  readonly hopLimit?: number;
  /** IPv4 TOS or IPv6 traffic class: DSCP << 2 | ECN. Default 0. */
  readonly trafficClass?: number;
  /** 20 bits; 0 = derived from the queue pair numbers. It also decides the UDP source port. Default 0. */
  readonly flowLabel?: number;
}

const UNTAGGED = 0xffffffff;
const DEFAULT_HOP_LIMIT = 64;

/**
 * A peer's resolved address; `device.createAh` makes it, `qp.modify({ahAttr})` takes it. It holds nothing in the card:
 * datagrams need what `pd.createAh` makes.
 */
export class AddressHandle {
  /** The peer's IP address as text. */
  readonly destination: string;
  /** Our own IP address as text. */
  readonly source: string;

  /** @internal */
  constructor(
    readonly dgid: string,
    readonly sgidIndex: number,
    source: string,
    readonly destMac: Uint8Array,
    readonly sourceMac: Uint8Array,
    readonly vlanTci: number | undefined,
    readonly hopLimit: number,
    readonly trafficClass: number,
    readonly flowLabel: number,
    /** Largest IP packet on the way in bytes, where the kernel knows it. */
    readonly pathMtu: number | undefined,
  ) {
    this.destination = gidAddress(dgid);
    this.source = source;
  }

  /** @internal Puts the address vector where the card expects it. */
  write(card: Card, sourcePort: number): void {
    const { bytes, exports, u32 } = card;
    const at = exports.scratch();
    const word = (offset: number, value: number) => {
      u32[(at + offset) >>> 2] = value;
    };
    const destination = gidBytes(this.dgid);
    const mapped = isMapped(destination);
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

/** @throws TypeError, RangeError for a wrong attribute; VerbsError EINVAL, EHOSTUNREACH */
export async function resolveAh(
  attr: AhAttr,
  gids: readonly GidEntry[],
  chooseGid: (peer: string) => { index: number },
  link: Link,
): Promise<AddressHandle> {
  const grh = attr?.grh;
  if (typeof grh?.dgid !== 'string')
    throw new TypeError(`ahAttr.grh.dgid is ${show(grh?.dgid)}, must be a GID or IP address as text`);
  const dgid = gidText(grh.dgid);
  const trafficClass = checkInteger('ahAttr.grh.trafficClass', grh.trafficClass ?? 0, 0, 255);
  const flowLabel = checkInteger('ahAttr.grh.flowLabel', grh.flowLabel ?? 0, 0, 0xfffff);
  const hopLimit = grh.hopLimit === undefined ? undefined : checkInteger('ahAttr.grh.hopLimit', grh.hopLimit, 1, 255);
  const index = grh.sgidIndex ?? chooseGid(dgid).index;
  checkInteger('ahAttr.grh.sgidIndex', index, 0, gids.length - 1);
  const source = gids[index] as GidEntry;
  if (isMapped(gidBytes(source.gid)) !== isMapped(gidBytes(dgid)))
    throw new VerbsError('EINVAL', `gid ${source.gid} (index ${index}) cannot reach ${dgid}: one is IPv4, one IPv6`);
  const found = await destinationOf(gidAddress(dgid), source.address, link);
  return new AddressHandle(
    dgid,
    index,
    source.address,
    found.destMac,
    link.interface.mac,
    found.vlanTci,
    hopLimit ?? found.hopLimit ?? DEFAULT_HOP_LIMIT,
    trafficClass,
    flowLabel,
    found.pathMtu,
  );
}

/** A group has its MAC from its address; nobody is asked. Its frames leave by the interface that has the source address, as
 * the kernel's own do: untagged, so a group of a VLAN is reached by a card on the VLAN's interface. */
async function destinationOf(destination: string, source: string, link: Link): Promise<Resolved> {
  const bytes = addressBytes(destination);
  return isMulticast(bytes) ? { destMac: multicastMac(bytes) } : link.resolve(destination, source);
}

/**
 * UDP source port of a connection: stable, and spread over 0xC000..0xFFFF so that equal-cost paths are all used. The
 * same rule as Linux': from the flow label, or from both queue pair numbers when that is 0.
 */
export function udpSourcePort(flowLabel: number, localQpn: number, remoteQpn: number): number {
  let label = flowLabel & 0xfffff;
  if (label === 0) {
    let mixed = BigInt(localQpn) * BigInt(remoteQpn);
    mixed ^= mixed >> 20n;
    mixed ^= mixed >> 40n;
    label = Number(mixed & 0xfffffn);
  }
  return ((label & 0x3fff) ^ ((label >>> 14) & 0x3f)) | 0xc000;
}

/** Largest of the path MTUs whose packets fit into IP packets of `ipMtu` bytes; 0 = not even 256. Linux rxe's rule. */
export function mtuWithin(ipMtu: number): number {
  for (let mtu = LIMITS.maxMtu; mtu >= 256; mtu /= 2) if (mtu <= ipMtu - 80) return mtu;
  return 0;
}

/**
 * @internal Packets that the interface or the route cannot carry would vanish silently.
 * @throws VerbsError EINVAL
 */
export function checkPathMtu(device: Device, pathMtu: number, address: AddressHandle | undefined): void {
  const { activeMtu } = device.queryPort();
  if (pathMtu > activeMtu)
    throw new VerbsError(
      'EINVAL',
      `pathMtu ${pathMtu} is more than the port's active MTU ${activeMtu} (interface MTU ${device.link.interface.mtu})`,
    );
  if (address?.pathMtu !== undefined && pathMtu > mtuWithin(address.pathMtu))
    throw new VerbsError(
      'EINVAL',
      `pathMtu ${pathMtu} does not fit the route to ${address.destination}, which carries ${address.pathMtu} bytes: at most ${mtuWithin(address.pathMtu)}`,
    );
}

function ipBytes(gid: Uint8Array, mapped: boolean): Uint8Array {
  if (!mapped) return gid;
  const field = new Uint8Array(16);
  field.set(gid.subarray(12));
  return field;
}
