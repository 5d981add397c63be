/** A target of NVMe over RDMA, whose namespaces are files. */
import { isDeepStrictEqual } from 'node:util';
import type { Device } from '../../index.js';
import { createTarget, machineNqn, type NamespaceOptions, type NvmeTarget } from '../../nvme.js';
import { openDisks } from '../nvme/disks.js';
import type { Fields, Log } from './log.js';
import type { NvmeConfig, ServiceConfig } from './schema.js';
import type { Service } from './service.js';

type Namespaces = NvmeConfig['namespaces'];

/**
 * @param device the only one; undefined: all interfaces
 * @throws the system's error of a file; VerbsError EADDRINUSE
 */
export async function openNvme(device: Device | undefined, config: NvmeConfig, log: Log): Promise<Service> {
  const { port, nqn = await machineNqn(), hosts } = config;
  const about = { service: 'nvme', port };
  const target = await createTarget({
    ...(device && { device }),
    port,
    subsystems: [{ nqn, namespaces: [], ...(hosts && { hosts }) }],
    onError: (error, { address, nqn: host }) =>
      log.error('host lost', error, { ...about, client: address, ...(host !== undefined && { host }) }),
  });
  const service = new NvmeService(target, { nqn, about, log }, { ...config, namespaces: {} });
  try {
    await service.update(config);
    return service;
  } catch (error) {
    await service.close();
    throw error;
  }
}

class NvmeService implements Service {
  readonly #target: NvmeTarget;
  readonly #nqn: string;
  readonly #log: Log;
  readonly about: Fields;
  #config: NvmeConfig;
  /** Ids of the namespaces by their names. */
  readonly #nsids = new Map<string, number>();

  constructor(target: NvmeTarget, { nqn, about, log }: { nqn: string; about: Fields; log: Log }, config: NvmeConfig) {
    this.#target = target;
    this.#nqn = nqn;
    this.#log = log;
    this.about = { ...about, nqn };
    this.#config = config;
  }

  /**
   * Adds and removes namespaces; hosts stay connected.
   * @returns false if more than the namespaces has changed @throws the system's error of a file; nothing has changed
   */
  async update(config: ServiceConfig): Promise<boolean> {
    if (!('namespaces' in config)) return false;
    const { namespaces: have, ...other } = this.#config;
    const { namespaces: want, ...others } = config;
    if (!isDeepStrictEqual(other, others)) return false;
    const differs = (name: string) => !isDeepStrictEqual(have[name], want[name]);
    const added = await openNamespaces(Object.keys(want).filter(differs), want);
    this.#config = config;
    for (const name of Object.keys(have).filter(differs)) await this.#remove(name);
    for (const options of added) {
      const nsid = this.#target.addNamespace(this.#nqn, options);
      this.#nsids.set(options.name as string, nsid);
      this.#log.info('namespace', { ...this.about, namespace: options.name, nsid });
    }
    return true;
  }

  close(): Promise<void> {
    return this.#target.close();
  }

  async #remove(name: string): Promise<void> {
    const nsid = this.#nsids.get(name) as number;
    const about = { ...this.about, namespace: name, nsid };
    this.#nsids.delete(name);
    try {
      await this.#target.removeNamespace(this.#nqn, nsid);
      this.#log.info('namespace closed', about);
    } catch (error) {
      this.#log.error('namespace not closed', error, about);
    }
  }
}

function openNamespaces(names: readonly string[], all: Namespaces): Promise<NamespaceOptions[]> {
  return openDisks(names.map((name) => ({ name, ...(all[name] as Namespaces[string]) })));
}
