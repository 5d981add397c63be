/** An endpoint: a device, regions and services, as a configuration says, and as the next one says while it runs. */
import { isDeepStrictEqual } from 'node:util';
import type { Device, OpenOptions, Pd } from '../../index.js';
import { openWatched } from '../device.js';
import { failure, usageError } from '../exit.js';
import { type Config, hostOf, type RegionConfig } from './config.js';
import type { Log } from './log.js';
import { memoryOf } from './memory.js';
import { openRegion, type Region } from './regions.js';
import type { Service } from './service.js';
import { openService, portOf, type Wanted, wantedOf } from './services.js';

/** What is the device's own cannot change under those who use it. */
const FIXED = ['interface', 'addresses', 'link', 'mode', 'spin', 'memory'] as const;

interface Running {
  readonly wanted: Wanted;
  readonly service: Service;
}

export class Endpoint {
  /** Rejects when the card has failed: nothing works any more. */
  readonly failed: Promise<never>;
  #config: Config;
  #services: readonly Running[] = [];
  #regions: ReadonlyMap<string, Region> = new Map();

  /** @throws as `openDevice`, and what keeps a region or service from being opened; nothing stays open then */
  static async open(config: Config, open: Pick<OpenOptions, 'pcap' | 'fault'>, log: Log): Promise<Endpoint> {
    const { interface: name, addresses, link, mode, spin } = config;
    const device = await openWatched({
      ...open,
      ...(name !== undefined && { interface: name }),
      ...(addresses && { addresses }),
      ...(link && { link }),
      ...(mode && { mode }),
      ...(spin !== undefined && { spin }),
      memoryBytes: memoryOf(config),
    });
    try {
      log.info('open', {
        ...{ interface: device.queryPort().interface, link: device.query().link.kind, mode: device.mode },
        ...{ addresses: device.gids.map(({ address }) => address), mtu: device.queryPort().activeMtu },
        notes: device.notes,
      });
      const endpoint = new Endpoint(device, await device.allocPd(), config, log);
      await endpoint.#apply(config);
      return endpoint;
    } catch (error) {
      await device.close({ force: true });
      throw error;
    }
  }

  /** @param pd of the regions: only connections of the service that tells of them reach them */
  private constructor(
    readonly device: Device,
    readonly pd: Pd,
    config: Config,
    readonly log: Log,
  ) {
    this.#config = config;
    this.failed = new Promise((_, reject) => {
      device.on('event', (event) => {
        const addresses = device.gids.map(({ address }) => address);
        if (event.type === 'PORT_ERR' || event.type === 'PORT_ACTIVE') log.warn('port', { event: event.type });
        if (event.type === 'GID_CHANGE') log.warn('addresses', { addresses });
        if (event.type === 'DEVICE_FATAL') reject(failure(event.reason));
      });
    });
    this.failed.catch(() => {});
  }

  /**
   * Becomes what another configuration says. What is the same in both goes on undisturbed.
   * @throws CliError for what cannot change; what keeps a region or service from being opened. All is as before then
   */
  async reload(config: Config): Promise<void> {
    const changed = FIXED.filter((key) => !isDeepStrictEqual(config[key], this.#config[key]));
    if (changed.length > 0) throw usageError(`${changed.join(', ')} cannot change while the endpoint runs: restart it`);
    await this.#apply(config);
    this.#config = config;
  }

  /** Writes all regions that persist to their files. @returns whether all could be written */
  async save(): Promise<boolean> {
    const saved = await Promise.all([...this.#regions.values()].map((region) => this.#save(region)));
    return saved.every((isSaved) => isSaved);
  }

  /**
   * Takes nobody any more, says goodbye to those who are there, writes the files, closes the device.
   * @throws CliError when a file could not be written
   */
  async stop(): Promise<void> {
    await Promise.all(this.#services.map((running) => this.#end(running)));
    const isSaved = await this.save();
    await this.device.close({ force: true });
    if (!isSaved) throw failure('a region could not be written to its file');
  }

  async #apply(config: Config): Promise<void> {
    const wanted = wantedOf(config);
    const isKept = ({ wanted: have }: Running) => wanted.some((want) => isDeepStrictEqual(want, have));
    const [kept, gone] = [this.#services.filter(isKept), this.#services.filter((running) => !isKept(running))];
    const fresh = wanted.filter((want) => !kept.some(({ wanted: have }) => isDeepStrictEqual(want, have)));
    const freed = new Set(gone.map(({ wanted: have }) => portOf(have)));
    const old = [...this.#regions.values()].filter(
      ({ name, config: have }) => !isDeepStrictEqual(config.regions[name], have),
    );
    const opened: Running[] = [];
    const regions = new Map<string, Region>();
    try {
      // one of the new ones may begin with what they hold
      for (const region of old) await region.save();
      for (const [name, want] of Object.entries(config.regions)) {
        const have = this.#regions.get(name);
        if (have && !old.includes(have)) regions.set(name, have);
        else regions.set(name, await this.#offer(name, want));
      }
      for (const want of fresh) if (!freed.has(portOf(want))) opened.push(await this.#serve(want, config));
    } catch (error) {
      for (const { service } of opened) await service.close();
      for (const [name, region] of regions) if (this.#regions.get(name) !== region) await region.close();
      throw error;
    }
    this.#regions = regions;
    await Promise.all(gone.map((running) => this.#end(running)));
    for (const region of old) await this.#drop(region);
    // what wanted the port of one that is gone
    for (const want of fresh)
      if (freed.has(portOf(want)))
        await this.#serve(want, config).then(
          (running) => opened.push(running),
          (error) => this.log.error('not served', error, { service: want.type }),
        );
    this.#services = [...kept, ...opened];
  }

  async #offer(name: string, config: RegionConfig): Promise<Region> {
    const region = await openRegion(this.pd, name, config);
    this.log.info('region', region.about);
    return region;
  }

  async #serve(wanted: Wanted, { addresses }: Config): Promise<Running> {
    const { device, pd, log } = this;
    const offers = () => [...this.#regions.values()].map(({ offer }) => offer);
    const service = await openService(wanted, { device, pd, offers, host: hostOf(addresses), log });
    log.info('serving', service.about);
    return { wanted, service };
  }

  async #end({ service }: Running): Promise<void> {
    try {
      await service.close();
      this.log.info('closed', service.about);
    } catch (error) {
      this.log.error('not closed', error, service.about);
    }
  }

  /** A region that is not wanted any more. */
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
