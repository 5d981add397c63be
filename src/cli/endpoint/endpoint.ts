/** An endpoint: devices, regions and services from a configuration, which can be reloaded while it runs. */
import { isDeepStrictEqual } from 'node:util';
import type { Pd } from '../../index.js';
import { failure, usageError } from '../exit.js';
import { listenHost } from './config.js';
import { type DebugOptions, EndpointDevices } from './devices.js';
import type { Log } from './log.js';
import { openRegion, type Region } from './regions.js';
import type { Config, RegionConfig } from './schema.js';
import type { Service } from './service.js';
import { openService, portKey, type ServiceSpec, serviceSpecs } from './services.js';

/** Keys of the devices, which cannot change while they are in use. */
const FIXED = ['interface', 'addresses', 'link', 'mode', 'spin', 'memory'] as const;

interface RunningService {
  readonly spec: ServiceSpec;
  readonly service: Service;
}

export class Endpoint {
  #config: Config;
  #services: readonly RunningService[] = [];
  #regions: ReadonlyMap<string, Region> = new Map();

  /** Opens everything, or nothing. @throws as `openDevice`, and errors of regions and services */
  static async open(config: Config, debug: DebugOptions, log: Log): Promise<Endpoint> {
    const devices = await EndpointDevices.open(config, debug, log);
    try {
      const endpoint = new Endpoint(devices, await devices.first.allocPd(), config, log);
      await endpoint.#apply(config);
      return endpoint;
    } catch (error) {
      await devices.close();
      throw error;
    }
  }

  /** @param pd of the regions: only connections of the service `regions` can access them */
  private constructor(
    readonly devices: EndpointDevices,
    readonly pd: Pd,
    config: Config,
    readonly log: Log,
  ) {
    this.#config = config;
  }

  /**
   * Applies another configuration. Regions and services that are the same in both are not interrupted. When this
   * throws, nothing has changed.
   * @throws CliError for keys that cannot change; errors of regions and services
   */
  async reload(config: Config): Promise<void> {
    const changed = FIXED.filter((key) => !isDeepStrictEqual(config[key], this.#config[key]));
    if (changed.length > 0) throw usageError(`${changed.join(', ')} cannot change while the endpoint runs: restart it`);
    await this.#apply(config);
    this.#config = config;
  }

  /** Writes all persistent regions to their files. @returns whether all could be written */
  async save(): Promise<boolean> {
    const saved = await Promise.all([...this.#regions.values()].map((region) => this.#save(region)));
    return saved.every((isSaved) => isSaved);
  }

  /**
   * Accepts no more connections, disconnects the clients, writes the files and closes the devices.
   * @throws CliError when a file could not be written
   */
  async stop(): Promise<void> {
    await Promise.all(this.#services.map((running) => this.#end(running)));
    const isSaved = await this.save();
    await this.devices.close();
    if (!isSaved) throw failure('a region could not be written to its file');
  }

  async #apply(config: Config): Promise<void> {
    const specs = serviceSpecs(config);
    const isKept = ({ spec: have }: RunningService) => specs.some((want) => isDeepStrictEqual(want, have));
    const [kept, gone] = [this.#services.filter(isKept), this.#services.filter((running) => !isKept(running))];
    const fresh = specs.filter((want) => !kept.some(({ spec: have }) => isDeepStrictEqual(want, have)));
    const freed = new Set(gone.map(({ spec: have }) => portKey(have)));
    const old = [...this.#regions.values()].filter(
      ({ name, config: have }) => !isDeepStrictEqual(config.regions[name], have),
    );
    const opened: RunningService[] = [];
    const regions = new Map<string, Region>();
    try {
      // a new region may load what an old one has saved
      for (const region of old) await region.save();
      for (const [name, want] of Object.entries(config.regions)) {
        const have = this.#regions.get(name);
        if (have && !old.includes(have)) regions.set(name, have);
        else regions.set(name, await this.#openRegion(name, want));
      }
      for (const want of fresh) if (!freed.has(portKey(want))) opened.push(await this.#serve(want, config));
    } catch (error) {
      for (const { service } of opened) await service.close();
      for (const [name, region] of regions) if (this.#regions.get(name) !== region) await region.close();
      throw error;
    }
    this.#regions = regions;
    const taken = new Set<string>();
    await Promise.all(
      gone.map(async (running) => {
        const want = fresh.find((spec) => portKey(spec) === portKey(running.spec));
        const changed = want && (await this.#update(running, want));
        if (changed === undefined) return this.#end(running);
        opened.push(changed);
        taken.add(portKey(changed.spec));
      }),
    );
    for (const region of old) await this.#drop(region);
    // services whose port was in use until now
    for (const want of fresh)
      if (freed.has(portKey(want)) && !taken.has(portKey(want)))
        await this.#serve(want, config).then(
          (running) => opened.push(running),
          (error) => this.log.error('not served', error, { service: want.type }),
        );
    this.#services = [...kept, ...opened];
  }

  async #openRegion(name: string, config: RegionConfig): Promise<Region> {
    const region = await openRegion(this.pd, name, config);
    this.log.info('region', { ...region.about, interface: this.devices.first.queryPort().interface });
    return region;
  }

  async #serve(spec: ServiceSpec, { addresses }: Config): Promise<RunningService> {
    const { devices, pd, log } = this;
    const regionInfos = () => [...this.#regions.values()].map(({ info }) => info);
    const service = await openService(spec, { devices, pd, regionInfos, host: listenHost(addresses), log });
    log.info('serving', service.about);
    return { spec, service };
  }

  /**
   * Changes a service without an interruption, or leaves it as it is if that fails.
   * @returns the service as it is now; undefined: it must be closed and opened anew
   */
  async #update({ spec, service }: RunningService, want: ServiceSpec): Promise<RunningService | undefined> {
    if ('host' in want || service.update === undefined) return undefined;
    try {
      if (!(await service.update(want))) return undefined;
      this.log.info('changed', service.about);
      return { spec: want, service };
    } catch (error) {
      this.log.error('not changed', error, service.about);
      return { spec, service };
    }
  }

  async #end({ service }: RunningService): Promise<void> {
    try {
      await service.close();
      this.log.info('closed', service.about);
    } catch (error) {
      this.log.error('not closed', error, service.about);
    }
  }

  /** Saves and closes a region that was removed. */
  async #drop(region: Region): Promise<void> {
    const { file } = region.config;
    const isTakenOver = [...this.#regions.values()].some(({ config }) => file !== undefined && config.file === file);
    if (!isTakenOver) await this.#save(region);
    await region.close();
    this.log.info('closed', { region: region.name });
  }

  async #save(region: Region): Promise<boolean> {
    const about = { region: region.name, file: region.config.file };
    try {
      if (await region.save()) this.log.info('saved', about);
      return true;
    } catch (error) {
      this.log.error('not saved', error, about);
      return false;
    }
  }
}
