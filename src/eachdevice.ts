/**
 * Services on the devices of the host. A service on all addresses is on every interface that can be used, also on those
 * that appear later, as rdma_cm's wildcard is on all devices.
 */
import { isIPv4 } from 'node:net';
import { isWildcard } from './base/address.js';
import { type Closable, Scope } from './base/scope.js';
import { emitWarning } from './base/warning.js';
import { servicePort } from './cm/hostport.js';
import { type DeviceUse, type Place, placeOf, useDevice, useGiven, usePlace } from './deviceuse.js';
import type { Device } from './index.js';
import { type HostInterface, listInterfaces, usableInterfaces } from './link/interfaces.js';
import { watchInterfaces } from './link/monitor.js';
import { lookupHost } from './link/peer.js';

/** Address of a service. */
export interface ServiceAddress {
  /** Name or address of ours. Undefined, `::` or `0.0.0.0`: all. */
  readonly host?: string | undefined;
  /** Port of rdma_cm's TCP port space; 0 for any. */
  readonly port: number;
}

/** A service on one device. */
export interface ServiceOnDevice extends Closable {
  /** The port that it has. */
  readonly port: number;
}

/**
 * Opens a service on a device, which is closed after it.
 * @param at its host has no name; its port is 0 only on a device of the application
 */
export type OpenOnDevice<T extends ServiceOnDevice> = (use: DeviceUse, at: ServiceAddress) => Promise<T>;

/** A service on its devices. */
export interface ServiceOnDevices<T extends ServiceOnDevice = ServiceOnDevice> extends Closable {
  /** The port, the same on all. */
  readonly port: number;
  /** Returns the service on each device. */
  all(): readonly T[];
  close(): Promise<void>;
}

/**
 * Opens a service on its device, or on each device of the host.
 * @param given the application's device: the only one
 * @param at a host that is not all addresses is that of the only device
 * @throws the error of `open`, after which nothing is left open; as `useDevice`, if that fails on all interfaces. If it
 * fails on some, a warning names each of them
 */
export function onEachDevice<T extends ServiceOnDevice>(
  given: Device | undefined,
  at: ServiceAddress,
  open: OpenOnDevice<T>,
): Promise<ServiceOnDevices<T>> {
  return Scope.open(async (scope) => {
    const { host } = at;
    const { port } = scope.add(servicePort('TCP', at.port, given !== undefined));
    if (given === undefined && isWildcard(host)) {
      const interfaces = scope.add(await EachInterface.open({ host, port }, open));
      return { port, all: () => interfaces.all(), close: () => scope.close() };
    }
    const address = host && (await lookupHost(host));
    const use = await (given === undefined ? useDevice(given, { local: address }) : useGiven(given));
    const { service } = scope.add(await openOn(use, { host: address, port }, open));
    return { port: service.port, all: () => [service], close: () => scope.close() };
  });
}

/** A service, closed with its use of a device. */
interface Opened<T> extends Closable {
  readonly service: T;
}

function openOn<T extends ServiceOnDevice>(
  use: DeviceUse,
  at: ServiceAddress,
  open: OpenOnDevice<T>,
): Promise<Opened<T>> {
  return Scope.open(async (scope) => {
    scope.add(use);
    const service = scope.add(await open(use, at));
    return { service, close: () => scope.close() };
  });
}

/** A service on all interfaces. */
class EachInterface<T extends ServiceOnDevice> implements Closable {
  readonly #at: ServiceAddress;
  readonly #open: OpenOnDevice<T>;
  /** By place. */
  readonly #opened = new Map<string, Opened<T>>();
  /** Places of which a warning has told. */
  readonly #told = new Set<string>();
  /** Settles when the last update has ended. */
  #updating: Promise<void> = Promise.resolve();
  #isUpdateWanted = false;
  #isClosed = false;
  #endWatch = () => {};

  private constructor(at: ServiceAddress, open: OpenOnDevice<T>) {
    this.#at = at;
    this.#open = open;
  }

  static async open<T extends ServiceOnDevice>(at: ServiceAddress, open: OpenOnDevice<T>): Promise<EachInterface<T>> {
    const all = new EachInterface(at, open);
    try {
      const failures = await all.#openNew();
      const failure = failures.find(({ isOfService }) => isOfService) ?? failures[0];
      if (failure?.isOfService || (failure && all.#opened.size === 0)) throw failure.error;
      all.#tell(failures);
    } catch (error) {
      await all.close();
      throw error;
    }
    all.#endWatch = watchInterfaces(() => all.#wantUpdate());
    // what has changed meanwhile
    all.#wantUpdate();
    return all;
  }

  all(): T[] {
    return [...this.#opened.values()].map(({ service }) => service);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#endWatch();
    await this.#updating;
    await Promise.all([...this.#opened.values()].map((opened) => opened.close()));
  }

  /** Changes that follow each other closely cause one update. */
  #wantUpdate(): void {
    if (this.#isUpdateWanted) return;
    this.#isUpdateWanted = true;
    // the next change tries again
    const warn = (error: Error) => emitWarning('WASM_ROCE_INTERFACE', `interfaces cannot be read: ${error.message}`);
    this.#updating = this.#updating.then(() => this.#update()).catch(warn);
  }

  async #update(): Promise<void> {
    this.#isUpdateWanted = false;
    if (this.#isClosed) return;
    // an interface that has lost its addresses may have them again
    const present = new Set(
      listInterfaces()
        .flatMap((iface) => (iface.isLoopback ? placesOn(iface) : [placeOf(iface, '')]))
        .map(({ key }) => key),
    );
    const gone = [...this.#opened].filter(([key]) => !present.has(key));
    for (const [key] of gone) this.#opened.delete(key);
    await Promise.allSettled(gone.map(([, opened]) => opened.close()));
    this.#tell(await this.#openNew());
  }

  /** Opens what is missing. @returns the failures */
  async #openNew(): Promise<Failure[]> {
    // loopback comes last: the error that is thrown is that of a network interface
    const usable = usableInterfaces();
    const isWanted = (address: string) => this.#at.host !== '0.0.0.0' || isIPv4(address);
    const places = new Map(usable.flatMap((iface) => placesOn(iface, isWanted)).map((place) => [place.key, place]));
    const missing = [...places.values()].filter(({ key }) => !this.#opened.has(key));
    const failures = await Promise.all(missing.map((place) => this.#openAt(place)));
    return failures.filter((failure) => failure !== undefined);
  }

  async #openAt(place: Place): Promise<Failure | undefined> {
    let use: DeviceUse;
    try {
      use = await usePlace(place);
    } catch (error) {
      return { place, error: error as Error, isOfService: false };
    }
    try {
      this.#opened.set(place.key, await openOn(use, this.#at, this.#open));
      return undefined;
    } catch (error) {
      return { place, error: error as Error, isOfService: true };
    }
  }

  #tell(failures: readonly Failure[]): void {
    for (const { place, error } of failures) {
      if (this.#told.has(place.key)) continue;
      this.#told.add(place.key);
      const message = `a service on all addresses is not on ${place.name}: ${error.message}`;
      emitWarning('WASM_ROCE_INTERFACE', message);
    }
  }
}

interface Failure {
  readonly place: Place;
  readonly error: Error;
  /** The device is open: the service could not be opened on it. */
  readonly isOfService: boolean;
}

/** Returns the places of an interface. Several addresses may have the same. */
function placesOn(iface: HostInterface, isWanted = (_address: string) => true): Place[] {
  return iface.addresses.filter(isWanted).map((address) => placeOf(iface, address));
}
