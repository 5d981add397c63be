/**
 * Other cards of the host. They may have the same addresses, and all that have an address hear what comes to its queue pair 1:
 * each message is for one of them, and the others, to whom it means nothing, must not refuse it. What is a card's own is
 * told by names (Link.names): the ports that it listens on, and the first byte of the ids that it gives.
 */
import { VerbsError } from '../errors.js';
import type { Names } from '../link/link.js';
import { gidAddress, gidBytes, gidText, isMapped } from '../verbs/gid.js';
import type { ListenParameters } from './listeners.js';
import type { Route } from './manager.js';
import { type PortSpaceName, parseServiceId } from './serviceid.js';

/** What the core asks before it refuses something. */
export interface Others {
  /** First byte of the ids that are ours; undefined = any. */
  readonly idPrefix: number | undefined;
  /** Whether another card has given an id. */
  hasId(id: number): boolean;
  /** Whether another card listens there. */
  serves(space: PortSpaceName, port: number, address: string): boolean;
}

/** Whether what a peer asks for is another card's to answer. */
export function isServedByOthers(
  others: Others,
  { serviceId }: { readonly serviceId: bigint },
  { local }: Route,
): boolean {
  const service = parseServiceId(serviceId);
  return service !== undefined && others.serves(service.space, service.port, local);
}

type Release = () => void;

/** One listener's names, by address. */
interface Service {
  readonly parameters: ListenParameters;
  readonly held: Map<string, Release>;
}

const PREFIXES = 256;
const prefixName = (prefix: number) => `cm/id/${prefix}`;
const serviceName = (space: PortSpaceName, port: number, gid: string) => `cm/${space}/${port}/${gidText(gid)}`;

export class Neighbours implements Others {
  readonly idPrefix: number | undefined;
  readonly #names: Names | undefined;
  readonly #releaseId: Release | undefined;
  readonly #services = new Set<Service>();
  #gids: readonly string[];

  /** @param names of the device's link; without them there is nobody else @param gids the device's */
  constructor(names: Names | undefined, gids: readonly string[]) {
    this.#names = names;
    this.#gids = gids;
    for (let prefix = 0; names !== undefined && prefix < PREFIXES && this.#releaseId === undefined; prefix++) {
      this.#releaseId = names.hold(prefixName(prefix));
      if (this.#releaseId !== undefined) this.idPrefix = prefix;
    }
  }

  hasId(id: number): boolean {
    const prefix = id >>> 24;
    return prefix !== this.idPrefix && this.#names?.isHeld(prefixName(prefix)) === true;
  }

  serves(space: PortSpaceName, port: number, address: string): boolean {
    const name = serviceName(space, port, address);
    for (const { held } of this.#services) if (held.has(name)) return false;
    return this.#names?.isHeld(name) === true;
  }

  /**
   * Takes a port on all addresses that a listener is for.
   * @returns gives it back
   * @throws VerbsError EADDRINUSE when another card has it on one of them; nothing is taken then
   */
  take(parameters: ListenParameters): Release {
    const service: Service = { parameters, held: new Map() };
    const release = () => {
      this.#services.delete(service);
      for (const releaseName of service.held.values()) releaseName();
      service.held.clear();
    };
    const taken = this.#hold(service);
    if (taken !== undefined) {
      release();
      const { space, port } = parameters;
      throw new VerbsError(
        'EADDRINUSE',
        `${space} port ${port} of ${gidAddress(taken)} has a listener already, of another device on this host`,
      );
    }
    this.#services.add(service);
    return release;
  }

  /** The device has other addresses. What another card has of a new one stays its own. */
  onGids(gids: readonly string[]): void {
    this.#gids = gids;
    for (const service of this.#services) {
      const wanted = new Set(this.#namesOf(service).map(([name]) => name));
      for (const [name, release] of service.held) {
        if (wanted.has(name)) continue;
        release();
        service.held.delete(name);
      }
      this.#hold(service);
    }
  }

  close(): void {
    for (const { held } of this.#services) for (const release of held.values()) release();
    this.#services.clear();
    this.#releaseId?.();
  }

  /** Holds what is not held yet. @returns an address that another card has */
  #hold(service: Service): string | undefined {
    let taken: string | undefined;
    for (const [name, gid] of this.#namesOf(service)) {
      if (service.held.has(name)) continue;
      const release = this.#names?.hold(name);
      if (release !== undefined) service.held.set(name, release);
      else if (this.#names !== undefined) taken = gid;
    }
    return taken;
  }

  /** Names and the GIDs that they are about. */
  #namesOf({ parameters: { space, port, address } }: Service): (readonly [string, string])[] {
    const isMeant = (gid: string) => {
      if (address === undefined || address === '::') return true;
      return address === '0.0.0.0' ? isMapped(gidBytes(gid)) : gidText(address) === gid;
    };
    return [...new Set(this.#gids)].filter(isMeant).map((gid) => [serviceName(space, port, gid), gid] as const);
  }
}
