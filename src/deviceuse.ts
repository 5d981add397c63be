/** Devices that sockets open by themselves: one for each local address, shared by the sockets of the process. */
import { type Check, instanceOf } from './base/options.js';
import type { Closable } from './base/scope.js';
import { Device, openDevice } from './index.js';
import { addressTowards } from './link/peer.js';

/** The check of an option that is a device. */
export const openedDevice: Check = instanceOf(() => Device, 'a device of openDevice');

/** A device and the right to use it until `close`. */
export interface DeviceUse extends Closable {
  readonly device: Device;
  /** Ends the use. A shared device is closed with its last user. */
  close(): Promise<void>;
}

interface Shared {
  readonly opened: Promise<Device>;
  users: number;
}

/** By local address; the device that is opened without a peer is under the empty text. */
const shared = new Map<string, Shared>();

/**
 * Returns a device for a connection.
 * @param given the application's own
 * @param peer the host to be reached, by whose route the device is found if none is given. Default: the first
 * interface that can be used
 * @throws as `openDevice`; VerbsError EHOSTUNREACH without a route
 */
export async function useDevice(given: Device | undefined, peer?: string): Promise<DeviceUse> {
  if (given !== undefined) return { device: given, close: async () => {} };
  const local = peer === undefined ? '' : await addressTowards(peer);
  const use = shared.get(local) ?? { opened: openDevice(peer === undefined ? {} : { peer }), users: 0 };
  shared.set(local, use);
  use.users++;
  const close = async () => {
    if (--use.users > 0) return;
    if (shared.get(local) === use) shared.delete(local);
    await (await use.opened).close({ force: true });
  };
  try {
    return { device: await use.opened, close };
  } catch (error) {
    if (shared.get(local) === use) shared.delete(local);
    throw error;
  }
}
