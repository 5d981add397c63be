/**
 * Addresses that several cards of a host share. Each message to queue pair 1 of an address is for one of the cards. Two
 * things say which: the port of a listener, and the first byte of the communication id that a card has assigned.
 *
 * Every card on a packet socket receives all messages, and must not refuse those that are for another one. So the cards
 * publish what is theirs as names of the host (Link.names). On a shared port (Link.sharedPort) a card receives only its
 * own messages, and the ports that it listens on are announced there as well.
 */

import { gidAddress, gidBytes, gidText, isIpv4Mapped } from '../base/gid.js';
import { VerbsError } from '../errors.js';
import { bindFree, type HostNames, type Link, type SharedPort } from '../link/link.js';
import type { ListenParameters } from './core/listeners.js';
import type { OtherCards } from './core/othercards.js';
import { type PortSpaceName, serviceId } from './core/serviceid.js';

/** Unbinds a name. */
type Release = () => void;

/** A listener's port, with the names that are bound for it. */
interface Reservation {
  readonly parameters: ListenParameters;
  readonly bound: Map<string, Release>;
}

/** A reserved port. */
export interface ReservedPort {
  /** Releases the port. A second call does nothing. */
  readonly release: Release;
  /** Settled when requests to the port reach this card. Rejects with VerbsError EADDRINUSE. */
  readonly isAnnounced: Promise<void>;
}

const PREFIXES = 256;
const prefixName = (prefix: number) => `cm/id/${prefix}`;
/** Returns the name of the host that a listener's port is on an address. */
export const serviceName = (space: PortSpaceName, port: number, gid: string) => `cm/${space}/${port}/${gidText(gid)}`;

/** The MAD agent of a device has one. */
export class SharedAddress implements OtherCards {
  readonly commIdPrefix: number | undefined;
  readonly #names: HostNames | undefined;
  readonly #port: SharedPort | undefined;
  readonly #releasePrefix: Release | undefined;
  readonly #reservations = new Set<Reservation>();
  #gids: readonly string[];

  /**
   * @param link the device's; without `names` there are no other cards
   * @param gids GIDs of the device, as text
   * @param start a random number: ids that begin with the same byte everywhere could be guessed more easily
   */
  constructor({ names, sharedPort }: Pick<Link, 'names' | 'sharedPort'>, gids: readonly string[], start: number) {
    this.#names = names;
    this.#port = sharedPort;
    this.#gids = gids;
    if (sharedPort !== undefined) {
      this.commIdPrefix = sharedPort.slot;
      return;
    }
    const prefix = names && bindFree(names, PREFIXES, start, prefixName);
    this.commIdPrefix = prefix?.number;
    this.#releasePrefix = prefix?.release;
  }

  ownsCommId(commId: number): boolean {
    const prefix = commId >>> 24;
    return prefix !== this.commIdPrefix && this.#names?.isBound(prefixName(prefix)) === true;
  }

  listensOn(space: PortSpaceName, port: number, address: string): boolean {
    const name = serviceName(space, port, address);
    for (const { bound } of this.#reservations) if (bound.has(name)) return false;
    return this.#names?.isBound(name) === true;
  }

  /**
   * Reserves a listener's port on all addresses that it covers.
   * @throws VerbsError EADDRINUSE when another card has the port on one of the addresses; nothing is reserved then
   */
  reservePort(parameters: ListenParameters): ReservedPort {
    const service: Reservation = { parameters, bound: new Map() };
    this.#reservations.add(service);
    const { taken, announcing } = this.#bindNames(service);
    if (taken !== undefined) {
      this.#release(service);
      const { space, port } = parameters;
      throw new VerbsError(
        'EADDRINUSE',
        `rdma_cm port ${port} (${space}) of ${gidAddress(taken)} has a listener already, of another device on this host`,
      );
    }
    const isAnnounced = Promise.all(announcing).then(() => {});
    isAnnounced.catch(() => {});
    return { release: () => this.#release(service), isAnnounced };
  }

  /** The addresses of the device have changed. A port that another card has on a new address stays with that card. */
  onGids(gids: readonly string[]): void {
    this.#gids = gids;
    for (const service of this.#reservations) {
      const wanted = new Set(this.#namesOf(service).map(([name]) => name));
      for (const [name, release] of service.bound) {
        if (wanted.has(name)) continue;
        release();
        service.bound.delete(name);
      }
      this.#bindNames(service);
    }
  }

  /** Releases all names. */
  close(): void {
    for (const service of this.#reservations) this.#release(service);
    this.#releasePrefix?.();
  }

  #release(service: Reservation): void {
    this.#reservations.delete(service);
    for (const release of service.bound.values()) release();
    service.bound.clear();
  }

  /**
   * Binds the names that are not bound yet, and announces them.
   * @returns an address on which another card has the port, and the announcements that have begun
   */
  #bindNames(service: Reservation): { readonly taken?: string; readonly announcing: readonly Promise<Release>[] } {
    const { space, port } = service.parameters;
    const announcing: Promise<Release>[] = [];
    let taken: string | undefined;
    for (const [name, gid] of this.#namesOf(service)) {
      if (service.bound.has(name)) continue;
      const release = this.#names?.bind(name);
      if (release === undefined) {
        if (this.#names !== undefined) taken = gid;
        continue;
      }
      const announced = this.#port?.listen(serviceId(space, port), gidAddress(gid));
      if (announced !== undefined) announcing.push(announced);
      service.bound.set(name, () => {
        release();
        announced?.then(
          (withdraw) => withdraw(),
          () => {},
        );
      });
    }
    // The first ones are reported by `isAnnounced`. A port that another card has on a new address stays with that card.
    for (const each of announcing) each.catch(() => {});
    return { ...(taken !== undefined && { taken }), announcing };
  }

  /** Returns the names of a listener, each with its GID. */
  #namesOf({ parameters: { space, port, address, ipv6Only } }: Reservation): (readonly [string, string])[] {
    const isCovered = (gid: string) => {
      if (address === undefined || address === '::') return !(ipv6Only && isIpv4Mapped(gidBytes(gid)));
      return address === '0.0.0.0' ? isIpv4Mapped(gidBytes(gid)) : gidText(address) === gid;
    };
    return [...new Set(this.#gids)].filter(isCovered).map((gid) => [serviceName(space, port, gid), gid] as const);
  }
}
