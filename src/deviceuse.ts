/** Devices that sockets open by themselves: one for each interface, shared by the sockets of the process. */
import { ipBytes, ipText, isWildcard } from './base/address.js';
import { type Check, type Checks, checkOptions, instanceOf, wrongType } from './base/options.js';
import type { Closable } from './base/scope.js';
import { Device, type OpenOptions, openDevice } from './index.js';
import { firstUsable, type HostInterface, interfaceByAddress } from './link/interfaces.js';
import { addressTowards, lookupHost } from './link/peer.js';
import { checkMemoryBytes } from './verbs/open.js';

/** The check of an option that is a device. */
export const openedDevice: Check = instanceOf(() => Device, 'a device of openDevice');

/** A device and the right to use it until `close`. */
export interface DeviceUse extends Closable {
  readonly device: Device;
  /** Returns another use of the same device. */
  share(): DeviceUse;
  /** Ends the use. A shared device is closed with its last user. A second call does nothing. */
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

/** Opens a shared device. */
export type SharedOpener = (options: OpenOptions) => Promise<Device>;

let openShared: SharedOpener = openDevice;

/** Sets a function that opens shared devices from now on, for a program that gives them more options. */
export function openSharedBy(open: SharedOpener): void {
  openShared = open;
}

/** Place of a shared device: an interface, all of whose addresses the device has, or one loopback address. */
export interface Place {
  /** Tells the places of the host apart. */
  readonly key: string;
  /** The interface, and the address of loopback: for people to read. */
  readonly name: string;
  /** Name of the interface. */
  readonly interface: string;
  /** The addresses of the device; undefined: all of the interface. */
  readonly addresses?: readonly string[];
}

/**
 * Returns the place of a local address. All addresses of an interface have the same. Loopback addresses have a device
 * each, so that each program of the host can use one of its own.
 */
export function placeOf({ name, index, isLoopback }: HostInterface, address: string): Place {
  if (!isLoopback) return { key: `${index}`, name, interface: name };
  const ip = ipText(ipBytes(address));
  return { key: `${index} ${ip}`, name: `${name} (${ip})`, interface: name, addresses: [ip] };
}

/** A device that is opened with its first user and closed with its last one. */
class SharedDevice {
  readonly place: Place;
  readonly #opened: Promise<Device>;
  #users = 0;

  /** @param before resolves when the last device of the place is closed */
  constructor(place: Place, before: Promise<void> | undefined) {
    this.place = place;
    this.#opened = Promise.resolve(before?.catch(() => {})).then(() => openAt(place));
  }

  /** Adds a user. @throws as `openDevice` */
  async use(): Promise<DeviceUse> {
    this.#users++;
    return this.#newUse(await this.#opened);
  }

  /** For a user that is counted. */
  #newUse(device: Device): DeviceUse {
    let isOver = false;
    return {
      device,
      share: () => {
        this.#users++;
        return this.#newUse(device);
      },
      close: async () => {
        if (isOver) return;
        isOver = true;
        if (--this.#users === 0) await this.#close(device);
      },
    };
  }

  async #close(device: Device): Promise<void> {
    const { key } = this.place;
    if (shared.get(key) === this) shared.delete(key);
    const closed = device.close({ force: true });
    closing.set(key, closed);
    await closed.finally(() => {
      if (closing.get(key) === closed) closing.delete(key);
    });
  }
}

/** By place. */
const shared = new Map<string, SharedDevice>();
/** By place: until a device has closed its sockets, no other one can open those. */
const closing = new Map<string, Promise<void>>();

/** Ends of a connection by which its device is found. */
export interface DeviceEnds {
  /** Name or address of the peer: the device is on the route to it. */
  readonly peer?: string | undefined;
  /** Name or address of ours. It goes before the peer, unless it means all addresses. */
  readonly local?: string | undefined;
}

/**
 * Returns a device for a connection, or for a service on one local address.
 * @param given the application's own
 * @param ends one of them is needed where none is given
 * @throws as `openDevice`; VerbsError EHOSTUNREACH without a route, EADDRNOTAVAIL for a local address of no interface
 */
export async function useDevice(given: Device | undefined, ends: DeviceEnds): Promise<DeviceUse> {
  if (given !== undefined) return useGiven(given);
  const { local, peer } = ends;
  const address = isWildcard(local) ? await addressTowards(peer as string) : await lookupHost(local);
  return usePlace(placeOf(interfaceByAddress(address), address));
}

/** Returns the use of a device that the application has opened, and closes. */
export function useGiven(device: Device): DeviceUse {
  return { device, share: () => useGiven(device), close: async () => {} };
}

/** Returns the use of the shared device of the first interface. @throws as `openDevice` */
export async function useFirst(): Promise<DeviceUse> {
  const iface = firstUsable();
  return usePlace(placeOf(iface, iface.addresses[0] as string));
}

/** Returns the use of the shared device of a place. @throws as `openDevice` */
export async function usePlace(place: Place): Promise<DeviceUse> {
  const { key } = place;
  const device = shared.get(key) ?? new SharedDevice(place, closing.get(key));
  shared.set(key, device);
  try {
    return await device.use();
  } catch (error) {
    if (shared.get(key) === device) shared.delete(key);
    throw error;
  }
}

async function openAt({ interface: name, addresses }: Place): Promise<Device> {
  const options = { interface: name, ...(addresses && { addresses }) };
  const { memoryBytes = memoryOfEnvironment() } = settings;
  if (memoryBytes !== undefined) return openShared({ ...options, memoryBytes });
  try {
    return await openShared({ ...options, memoryBytes: MEMORY_BYTES });
  } catch (error) {
    // the address space of the process, or what the system commits, is limited
    if (!(error instanceof RangeError)) throw error;
    return openShared(options);
  }
}

/** @throws TypeError, RangeError for a value that is no size */
function memoryOfEnvironment(): number | undefined {
  const value = process.env[MEMORY_VARIABLE];
  if (value === undefined || value === '') return undefined;
  if (!/^\d+$/.test(value)) throw wrongType(MEMORY_VARIABLE, value, 'an integer');
  return checkMemoryBytes(MEMORY_VARIABLE, Number(value));
}
