/** The path to a peer, from the kernel's routing and neighbour tables: source address, hop limit, path MTU. */

import { isWildcard } from '../base/address.js';
import { gidText } from '../base/gid.js';
import { maxPathMtu } from '../verbs/address/resolvedaddress.js';
import type { Context } from '../verbs/objects/context.js';

/** A resolved path (rdma_resolve_addr). */
export interface Path {
  /** Our IP address, as text. */
  readonly source: string;
  /** The peer's IP address, as text. */
  readonly destination: string;
  /** Index of the source in the GID table at the time of the lookup. */
  readonly sgidIndex: number;
  readonly hopLimit: number;
  /** Path MTU, bytes. */
  readonly mtu: number;
}

/**
 * Looks up route and neighbour.
 * @param boundAddress our address, when the application has chosen one
 * @throws TypeError; VerbsError EADDRNOTAVAIL, EHOSTUNREACH
 */
export async function findPath(device: Context, destination: string, boundAddress: string | undefined): Promise<Path> {
  const sgidIndex = isWildcard(boundAddress)
    ? device.chooseGid(destination).index
    : device.gids.findIndex(({ gid }) => gid === gidText(boundAddress));
  const ah = await device.resolveAddress({ grh: { dgid: destination, sgidIndex } });
  const { activeMtu } = device.queryPort();
  const mtu = ah.pathMtu === undefined ? activeMtu : Math.min(activeMtu, maxPathMtu(ah.pathMtu));
  return { source: ah.source, destination: ah.destination, sgidIndex, hopLimit: ah.hopLimit, mtu };
}
