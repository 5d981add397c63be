/**
 * Datagram services of peers: the queue pair that receives the datagrams for an address and port. The peer names it
 * (SIDR), the answer is kept, and asked for again while it is used, because a peer that restarts has a new queue pair.
 */
import { performance } from '../base/timers.js';
import { type CmAddress, type CmId, createCmId } from '../cm/index.js';
import { VerbsError } from '../errors.js';
import type { Context } from '../verbs/objects/context.js';

/** Time for which a service in use is asked for again (ms): SIDR repeats its request after 4.1 s. */
const REFRESH_TIMEOUT = 10_000;

/** A peer's datagram service. */
export interface Service extends CmAddress {
  /** Our address on the path to it. */
  readonly localAddress: string;
  readonly qpNum: number;
  readonly qkey: number;
}

interface Entry {
  /** The latest answer. */
  service: Service | undefined;
  lookup: Promise<Service> | undefined;
  freshUntil: number;
}

export interface ServiceCacheOptions {
  /** Address and port of the socket. */
  readonly local: CmAddress;
  /** Most services that are kept, and most that are looked up at a time. */
  readonly limit: number;
  /** Milliseconds after which a service in use is looked up again. */
  readonly refreshInterval: number;
}

export class ServiceCache {
  readonly #device: Context;
  readonly #options: ServiceCacheOptions;
  /** Least recently used first. */
  readonly #entries = new Map<string, Entry>();
  /** Ports by address and queue pair number of the services that are kept. */
  readonly #ports = new Map<string, number>();
  readonly #lookups = new Set<CmId>();

  constructor(device: Context, options: ServiceCacheOptions) {
    this.#device = device;
    this.#options = options;
  }

  /**
   * Returns a service. One that is known is returned as it is, even when it has to be looked up again.
   * @param address IP address, in the form of `gidAddress`
   * @throws as `CmId.resolveAddr` and `CmId.connect`; VerbsError ENOMEM when too many are looked up
   */
  async resolve(address: string, port: number): Promise<Service> {
    const key = `${address} ${port}`;
    const entry = this.#entries.get(key) ?? { service: undefined, lookup: undefined, freshUntil: 0 };
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    if (entry.lookup === undefined && performance.now() >= entry.freshUntil) this.#refresh(key, entry, address, port);
    for (const [oldest, { service }] of this.#entries) {
      if (this.#entries.size <= this.#options.limit) break;
      this.#delete(oldest, service);
    }
    return entry.service ?? (entry.lookup as Promise<Service>);
  }

  /** Returns the port of the service that has this queue pair; 0 when no such service is kept. */
  portOf(address: string, qpNum: number): number {
    return this.#ports.get(`${address} ${qpNum}`) ?? 0;
  }

  /** Ends all lookups, and forgets all services. */
  close(): void {
    for (const id of this.#lookups) void id.close();
    this.#entries.clear();
    this.#ports.clear();
  }

  #refresh(key: string, entry: Entry, address: string, port: number): void {
    const isKept = () => this.#entries.get(key) === entry;
    entry.lookup = this.#lookUp(address, port, entry.service === undefined ? undefined : REFRESH_TIMEOUT);
    entry.lookup.then(
      (service) => {
        if (isKept()) this.#keep(entry, service);
      },
      () => {
        // The service is gone: the next datagram asks for it, and reports why it was not sent.
        if (isKept()) this.#delete(key, entry.service);
      },
    );
  }

  #keep(entry: Entry, service: Service): void {
    if (entry.service !== undefined) this.#ports.delete(`${entry.service.address} ${entry.service.qpNum}`);
    this.#ports.set(`${service.address} ${service.qpNum}`, service.port);
    Object.assign(entry, {
      service,
      lookup: undefined,
      freshUntil: performance.now() + this.#options.refreshInterval,
    });
  }

  #delete(key: string, service: Service | undefined): void {
    this.#entries.delete(key);
    if (service !== undefined) this.#ports.delete(`${service.address} ${service.qpNum}`);
  }

  async #lookUp(address: string, port: number, timeout: number | undefined): Promise<Service> {
    const { limit, local } = this.#options;
    if (this.#lookups.size >= limit)
      throw new VerbsError('ENOMEM', `${limit} destinations are being resolved, no more are allowed at a time`);
    const id = createCmId(this.#device, { space: 'UDP' });
    this.#lookups.add(id);
    try {
      await id.bindAddr(local.address, local.port);
      await id.resolveAddr(address, port);
      await id.resolveRoute();
      const { datagram } = await id.connect({}, timeout === undefined ? {} : { timeout });
      const { qpNum = 0, qkey = 0 } = datagram ?? {};
      return { address, port, localAddress: id.localAddress?.address as string, qpNum, qkey };
    } finally {
      this.#lookups.delete(id);
      await id.close();
    }
  }
}
