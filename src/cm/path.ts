/** The path to a peer, from the kernel's tables: which address of ours, how far, how large packets may be. */
import { VerbsError } from '../errors.js';
import { mtuWithin } from '../verbs/ah.js';
import { checkInteger } from '../verbs/check.js';
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

/** The promise's end, or ETIMEDOUT. @param what for the message @param timeout milliseconds @throws TypeError, RangeError */
export async function within<T>(promise: Promise<T>, what: string, timeout: number | undefined): Promise<T> {
  if (timeout === undefined) return promise;
  checkInteger('timeout', timeout, 0, 2 ** 31 - 1);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const error = new VerbsError('ETIMEDOUT', `${what} within ${timeout} ms`);
    timer = setTimeout(() => reject(error), timeout);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
    promise.catch(() => {});
  }
}
