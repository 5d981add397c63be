/**
 * Services on the devices of the host. A service on all addresses is on every interface that can be used, also on those
 * that appear later, as rdma_cm's wildcard is on all devices.
 */
import { isIPv4 } from 'node:net';
import type { Closable } from './base/scope.js';
import { type DeviceUse, isWildcard, type Place, placeOf, useDevice, useGiven, usePlace } from './deviceuse.js';
import type { Device } from './index.js';
import { type HostInterface, listInterfaces, usableInterfaces } from './link/interfaces.js';
import { watchInterfaces } from './link/monitor.js';
import { lookupHost } from './link/peer.js';

/** Code of the warning that a service is not on one of the interfaces. */
const WARNING = 'WASM_ROCE_INTERFACE';

/**
 * Opens what a service has on a device, which is closed after it.
 * @param host the IP address of the service, without a name; undefined: all
 */
export type OpenOnDevice = (use: DeviceUse, host: string | undefined) => Promise<Closable>;

/**
 * Opens what a service has on its device, or on each device of the host.
 * @param given the application's device: the only one
 * @param host name or address of ours: that of the only device. Undefined, `::` or `0.0.0.0`: all interfaces
 * @returns closes all
 * @throws the error of `open`, after which nothing is left open; as `useDevice`, if that fails on all interfaces: an
 * interface where it fails alone is told by a warning
 */
export async function onEachDevice(
  given: Device | undefined,
  host: string | undefined,
  open: OpenOnDevice,
): Promise<Closable> {
  if (given === undefined && isWildcard(host)) return EachInterface.open(host, open);
  const address = host && (await lookupHost(host));
  const use = await (given === undefined ? useDevice(given, { local: address }) : useGiven(given));
  return openOn(use, address, open);
}

async function openOn(use: DeviceUse, host: string | undefined, open: OpenOnDevice): Promise<Closable> {
  try {
    const opened = await open(use, host);
    return {
      close: async () => {
        // of an interface that is gone, something may still be in use
        try {
          await opened.close();
        } finally {
          await use.close();
        }
      },
    };
  } catch (error) {
    await use.close();
    throw error;
  }
}

/** A service on all interfaces. */
class EachInterface implements Closable {
  readonly #host: undefined | '::' | '0.0.0.0';
  readonly #open: OpenOnDevice;
  /** By place. */
  readonly #opened = new Map<string, Closable>();
  /** Places of which a warning has told. */
  readonly #told = new Set<string>();
  /** Settles when the last update has ended. */
  #updating: Promise<void> = Promise.resolve();
  #isUpdateWanted = false;
  #isClosed = false;
  #endWatch = () => {};

  private constructor(host: undefined | '::' | '0.0.0.0', open: OpenOnDevice) {
    this.#host = host;
    this.#open = open;
  }

  static async open(host: undefined | '::' | '0.0.0.0', open: OpenOnDevice): Promise<EachInterface> {
    const all = new EachInterface(host, open);
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
    this.#updating = this.#updating.then(() => this.#update());
  }

  /** Never rejects. */
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
    // the network before loopback, so that its error is told first
    const usable = usableInterfaces().sort((a, b) => Number(a.isLoopback) - Number(b.isLoopback));
    const isWanted = (address: string) => this.#host !== '0.0.0.0' || isIPv4(address);
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
      this.#opened.set(place.key, await openOn(use, this.#host, this.#open));
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
      process.emitWarning(message, { code: WARNING });
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
