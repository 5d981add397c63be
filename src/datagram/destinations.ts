/** Resolves the destinations of datagrams: from an address and port to a queue pair, a route and an address handle. */
import { ipBytes, isMulticast } from '../base/address.js';
import { gidAddress } from '../base/gid.js';
import { performance } from '../base/timers.js';
import type { AhCache, Route } from '../cm/ahcache.js';
import { type CmAddress, UDP_QKEY } from '../cm/index.js';
import { VerbsError } from '../errors.js';
import { lookupHost } from '../link/peer.js';
import { checkZone } from '../link/zones.js';
import { MULTICAST_QPN } from '../verbs/address/groups.js';
import type { AddressHandle } from '../verbs/objects/ah.js';
import type { Context } from '../verbs/objects/context.js';
import type { ServiceCache } from './services.js';
import type { Target } from './target.js';

/** The destination of a datagram. */
export interface Destination {
  readonly route: Route;
  readonly qpNum: number;
  readonly qkey: number;
  readonly ah: AddressHandle;
}

/** See the head of this file. */
export class Destinations {
  readonly #device: Context;
  readonly #local: string;
  readonly #services: ServiceCache;
  readonly #ahs: AhCache;

  /** @param local the address that the socket is bound to */
  constructor(device: Context, local: string, services: ServiceCache, ahs: AhCache) {
    this.#device = device;
    this.#local = local;
    this.#services = services;
    this.#ahs = ahs;
  }

  /** @throws as `socket.send` */
  async resolve(target: Target): Promise<Destination> {
    const found = await this.#find(target);
    const { route } = found;
    const ah = await new Promise<AddressHandle | undefined>((resolve, reject) =>
      this.#ahs.resolve(
        route,
        performance.now(),
        () => resolve(this.#ahs.get(route)),
        (error) => (error === undefined ? resolve(undefined) : reject(error)),
      ),
    );
    if (ah === undefined) throw new VerbsError('ENOMEM', 'too many destinations are being resolved');
    return { ...found, ah };
  }

  /** Resolves the peer of a connected socket. @throws as `socket.connect` */
  async resolvePeer(port: number, address: string): Promise<CmAddress> {
    const remote = await this.#lookUp(address);
    await this.#services.resolve(remote, port);
    return { address: remote, port };
  }

  async #find(target: Target): Promise<Omit<Destination, 'ah'>> {
    if ('qpNum' in target) {
      const { address, qpNum, qkey = UDP_QKEY, localAddress } = target;
      return { route: { local: this.#localTowards(address, localAddress), remote: address }, qpNum, qkey };
    }
    const remote = await this.#lookUp(target.address);
    if (isMulticast(ipBytes(remote)))
      return { route: { local: this.#localTowards(remote), remote }, qpNum: MULTICAST_QPN, qkey: UDP_QKEY };
    const { localAddress: local, qpNum, qkey } = await this.#services.resolve(remote, target.port);
    return { route: { local, remote }, qpNum, qkey };
  }

  /**
   * Returns the IP address of a host, without a zone.
   * @throws as `lookupHost`; VerbsError EADDRNOTAVAIL for the zone of another interface
   */
  async #lookUp(host: string): Promise<string> {
    const address = await lookupHost(host);
    checkZone(address, this.#device.link.interface);
    return gidAddress(address);
  }

  /** @param preferred used if it is an address of the device */
  #localTowards(remote: string, preferred?: string): string {
    const { gids } = this.#device;
    const wanted = [preferred, this.#local];
    const own = wanted.find((address) => gids.some((entry) => entry.address === address));
    return own ?? (gids[this.#device.chooseGid(remote).index]?.address as string);
  }
}
