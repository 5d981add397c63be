/** UDP source ports of packets. */
import { GSI } from '../../device/codes.js';
import type { Link } from '../../link/link.js';
import { MULTICAST_QPN } from './groups.js';
import type { ResolvedAddress } from './resolvedaddress.js';

/**
 * Returns the UDP source port of a connection: stable, and spread over 0xC000..0xFFFF for equal-cost multipath. It
 * follows from the flow label, or from both queue pair numbers if the label is 0, as in Linux (rdma_get_udp_sport).
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

/**
 * Returns the UDP source port of packets from a queue pair to another one: that of the link, if it sets one, else
 * `udpSourcePort`.
 * @param localQpn, remoteQpn 0: not known
 */
export function sourcePortOf(link: Link, address: ResolvedAddress, localQpn: number, remoteQpn: number): number {
  const ofLink = link.features.sourcePort || link.sourcePortTo?.(address, programOf(remoteQpn));
  return ofLink || udpSourcePort(address.flowLabel, localQpn, remoteQpn);
}

/** Returns the program of the peer's host that receives packets to a queue pair, as `Link.sourcePortTo` takes it. */
function programOf(remoteQpn: number): number | 'any' {
  if (remoteQpn === GSI.qpn) return 'any';
  return remoteQpn === MULTICAST_QPN ? 0 : remoteQpn >>> 16;
}
