/** The path to a peer, from the kernel's tables: which address of ours, how far, how large packets may be. */
import { mtuWithin } from '../verbs/ah.js';
import type { Device } from '../verbs/context.js';
import { gidText } from '../verbs/gid.js';

export interface Path {
  /** IP addresses as text. */
  readonly source: string;
  readonly destination: string;
  /** Index of the source in the GID table when it was looked up. */
  readonly sgidIndex: number;
  readonly hopLimit: number;
  /** Path MTU, bytes. */
  readonly mtu: number;
}

/**
 * Route and neighbour.
 * @param bound our address, if the program has chosen one
 * @throws TypeError; VerbsError EADDRNOTAVAIL, EHOSTUNREACH
 */
export async function findPath(device: Device, destination: string, bound: string | undefined): Promise<Path> {
  const isBound = bound !== undefined && !['0.0.0.0', '::'].includes(bound);
  const sgidIndex = isBound
    ? device.gids.findIndex(({ gid }) => gid === gidText(bound))
    : device.chooseGid(destination).index;
  const ah = await device.createAh({ grh: { dgid: destination, sgidIndex } });
  const { activeMtu } = device.queryPort();
  const mtu = ah.pathMtu === undefined ? activeMtu : Math.min(activeMtu, mtuWithin(ah.pathMtu));
  return { source: ah.source, destination: ah.destination, sgidIndex, hopLimit: ah.hopLimit, mtu };
}
