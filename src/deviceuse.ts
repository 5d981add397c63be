/** Devices that sockets open by themselves: one for each local address, shared by the sockets of the process. */
import { type Check, type Checks, checkOptions, instanceOf, wrongType } from './base/options.js';
import type { Closable } from './base/scope.js';
import { Device, type OpenOptions, openDevice } from './index.js';
import { addressTowards } from './link/peer.js';
import { checkMemoryBytes } from './verbs/open.js';

/** The check of an option that is a device. */
export const openedDevice: Check = instanceOf(() => Device, 'a device of openDevice');

/** A device and the right to use it until `close`. */
export interface DeviceUse extends Closable {
  readonly device: Device;
  /** Ends the use. A shared device is closed with its last user. */
  close(): Promise<void>;
}

/** Memory for some thousand sockets. The system provides its pages as they are first used. */
const MEMORY_BYTES = 2 ** 30;
/** The variable of the environment that sets the memory. */
const MEMORY_VARIABLE = 'WASM_ROCE_MEMORY_BYTES';

/** Settings of the devices that sockets open by themselves. */
export interface SharedDeviceSettings {
  /**
   * Bytes of the memory of each device, 8 MiB to 4 GiB. Default: the variable `WASM_ROCE_MEMORY_BYTES` of the
   * environment, or 1 GiB; 256 MiB where the system refuses that.
   */
  readonly memoryBytes?: number;
}

const SETTINGS_CHECKS: Checks<SharedDeviceSettings> = { memoryBytes: checkMemoryBytes };
let settings: SharedDeviceSettings = {};

/** Sets what devices get that sockets open from now on. @throws TypeError, RangeError for wrong settings */
export function configure(options: SharedDeviceSettings): void {
  settings = { ...settings, ...checkOptions('configure', options, SETTINGS_CHECKS) };
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
  const use = shared.get(local) ?? { opened: openShared(peer === undefined ? {} : { peer }), users: 0 };
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

async function openShared(options: OpenOptions): Promise<Device> {
  const { memoryBytes = memoryOfEnvironment() } = settings;
  if (memoryBytes !== undefined) return openDevice({ ...options, memoryBytes });
  try {
    return await openDevice({ ...options, memoryBytes: MEMORY_BYTES });
  } catch (error) {
    // the address space of the process, or what the system commits, is limited
    if (!(error instanceof RangeError)) throw error;
    return openDevice(options);
  }
}

/** @throws TypeError, RangeError for a value that is no size */
function memoryOfEnvironment(): number | undefined {
  const value = process.env[MEMORY_VARIABLE];
  if (value === undefined || value === '') return undefined;
  if (!/^\d+$/.test(value)) throw wrongType(MEMORY_VARIABLE, value, 'an integer');
  return checkMemoryBytes(MEMORY_VARIABLE, Number(value));
}
