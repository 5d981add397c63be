/**
 * Cache of address handles for queue pair 1, with limits. A handle by source and destination address is looked up, and
 * again after a while, as neighbours change. A handle for a reply to a datagram leads back where the datagram came
 * from, without a look-up.
 */

import { gidText } from '../base/gid.js';
import { VerbsError } from '../errors.js';
import type { GidEntry } from '../verbs/address/gid.js';
import { addressOfSender } from '../verbs/address/resolvedaddress.js';
import { AddressHandle } from '../verbs/objects/ah.js';
import type { DeviceBase } from '../verbs/objects/devicebase.js';
import type { Pd } from '../verbs/objects/pd.js';
import type { Neighbour, Route } from './core/context.js';

export type { Route };

/** An entry is looked up again after this time, if it is used then (ms). A failure is remembered as long. */
const REFRESH_INTERVAL = 1000;
/** Destinations whose handles are kept, and senders; the least recently used is replaced. */
const MAX_ENTRIES = { destinations: 1024, senders: 64 };
/** Look-ups at a time. Beyond, messages to other destinations are dropped. */
const MAX_LOOKUPS = 128;

interface CachedAh {
  /** Set once the lookup has succeeded; the previous handle until then. */
  ah: AddressHandle | undefined;
  readonly lookup: Promise<AddressHandle>;
  readonly freshUntil: number;
}

/** The MAD agent of a device has one. */
export class AhCache {
  /** Both in the order of their last use. */
  readonly #entries = new Map<string, CachedAh>();
  readonly #senders = new Map<string, AddressHandle>();
  readonly #retired: RetiredAhs;
  #lookups = 0;

  constructor(readonly pd: Pd) {
    this.#retired = RetiredAhs.of(pd.device);
  }

  /** Number of handles and look-ups that are kept. */
  get size(): number {
    return this.#entries.size + this.#senders.size;
  }

  /**
   * Looks up a route. Calls `onResolved`, synchronously when the cache has a handle or needs none, or `onError`.
   * @param now milliseconds
   */
  resolve(route: Route, now: number, onResolved: () => void, onError: (error?: unknown) => void): void {
    if (route.neighbour !== undefined) {
      onResolved();
      return;
    }
    this.#retired.closeUnused();
    const entry = this.#freshEntry(route, now);
    if (entry?.ah !== undefined) onResolved();
    else if (entry !== undefined) entry.lookup.then(onResolved, onError);
    else onError();
  }

  /** Returns the latest handle of a route, of any age. The caller uses it at once. @throws VerbsError ENOMEM */
  get(route: Route): AddressHandle | undefined {
    return route.neighbour === undefined
      ? this.#entries.get(keyOf(route))?.ah
      : this.#handleOfSender(route, route.neighbour);
  }

  #freshEntry(route: Route, now: number): CachedAh | undefined {
    const key = keyOf(route);
    const known = this.#entries.get(key);
    if (known !== undefined && known.freshUntil > now) {
      moveToEnd(this.#entries, key, known);
      return known;
    }
    if (this.#lookups === MAX_LOOKUPS) return known?.ah && known;
    this.#lookups++;
    const lookup = this.#lookUp(route);
    // The previous handle is used until the lookup has finished.
    const entry: CachedAh = { ah: known?.ah, lookup, freshUntil: now + REFRESH_INTERVAL };
    moveToEnd(this.#entries, key, entry);
    this.#evict(this.#entries, MAX_ENTRIES.destinations, ({ ah }) => ah);
    lookup.then(
      (ah) => {
        this.#lookups--;
        if (entry.ah !== undefined) this.#retired.retire(entry.ah);
        entry.ah = ah;
        if (this.#entries.get(key) !== entry) this.#retired.retire(ah);
      },
      () => {
        this.#lookups--;
        if (entry.ah !== undefined) this.#retired.retire(entry.ah);
        entry.ah = undefined;
      },
    );
    return entry;
  }

  async #lookUp({ local, remote }: Route): Promise<AddressHandle> {
    const sgidIndex = this.#gidEntry(local).index;
    return this.pd.createAh({ grh: { dgid: remote, sgidIndex } });
  }

  #gidEntry(local: string): GidEntry {
    const entry = this.pd.device.gids.find(({ gid }) => gid === gidText(local));
    if (entry !== undefined) return entry;
    throw new VerbsError('EADDRNOTAVAIL', `${local} is not (or no longer) an address of ${this.pd.device}`);
  }

  #handleOfSender(route: Route, neighbour: Neighbour): AddressHandle {
    const key = `${keyOf(route)} ${neighbour.mac} ${neighbour.vlanTci}`;
    const { link } = this.pd.device;
    const address = (entry: GidEntry) => addressOfSender(route.remote, entry, neighbour, link);
    const ah = this.#senders.get(key) ?? new AddressHandle(this.pd, address(this.#gidEntry(route.local)));
    moveToEnd(this.#senders, key, ah);
    this.#evict(this.#senders, MAX_ENTRIES.senders, (oldest) => oldest);
    return ah;
  }

  #evict<T>(entries: Map<string, T>, limit: number, handleOf: (entry: T) => AddressHandle | undefined): void {
    for (const [key, entry] of entries) {
      if (entries.size <= limit) return;
      entries.delete(key);
      const ah = handleOf(entry);
      if (ah !== undefined) this.#retired.retire(ah);
    }
  }

  /** Closes the retired handles that no pending datagram uses. */
  closeRetired(): void {
    this.#retired.closeUnused();
  }

  /** Retires all handles, so that the protection domain can be closed. */
  close(): void {
    const handles = [...Array.from(this.#entries.values(), ({ ah }) => ah), ...this.#senders.values()];
    this.#entries.clear();
    this.#senders.clear();
    for (const ah of handles) if (ah !== undefined) this.#retired.retire(ah);
  }
}

function keyOf({ local, remote }: Route): string {
  return `${local} ${remote}`;
}

function moveToEnd<T>(entries: Map<string, T>, key: string, entry: T): void {
  entries.delete(key);
  entries.set(key, entry);
}

const retiredByDevice = new WeakMap<DeviceBase, RetiredAhs>();

/** Address handles that are replaced but may have pending datagrams. They are closed when no datagram uses them. */
export class RetiredAhs {
  readonly #ahs = new Set<AddressHandle>();

  /** Returns the retired handles of a device. */
  static of(device: DeviceBase): RetiredAhs {
    const old = retiredByDevice.get(device) ?? new RetiredAhs();
    retiredByDevice.set(device, old);
    return old;
  }

  /** Closes a handle, or takes it over, and then it no longer keeps its protection domain open. */
  retire(ah: AddressHandle): void {
    this.closeUnused();
    if (!ah.isClosed && !tryClose(ah)) this.#ahs.add(ah.makeInternal());
  }

  /** Closes the handles that no pending datagram uses. */
  closeUnused(): void {
    for (const ah of this.#ahs) if (tryClose(ah)) this.#ahs.delete(ah);
  }
}

/** @returns false while a pending datagram uses the handle */
function tryClose(ah: AddressHandle): boolean {
  try {
    ah[Symbol.dispose]();
    return true;
  } catch {
    return false;
  }
}
