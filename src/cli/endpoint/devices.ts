/** The devices of an endpoint: the one that its configuration names, or one for each interface of the host. */
import type { Closable } from '../../base/scope.js';
import { openSharedBy, useFirst } from '../../deviceuse.js';
import type { Device, OpenOptions } from '../../index.js';
import { openPublished } from '../device.js';
import { failure } from '../exit.js';
import type { Log } from './log.js';
import { cardMemory } from './memory.js';
import type { Config } from './schema.js';

/** Options of the command line that are not in a configuration. */
export type DebugOptions = Pick<OpenOptions, 'pcap' | 'fault'>;

export class EndpointDevices implements Closable {
  /** Rejects when a card has failed. */
  readonly failed: Promise<never>;
  readonly #config: Config;
  readonly #debug: DebugOptions;
  readonly #log: Log;
  /** Some may be closed. */
  #opened: Device[] = [];
  #fail = (_error: Error) => {};
  #first: (Closable & { readonly device: Device }) | undefined;

  /**
   * Opens the device that the configuration names, or that of the first interface; services open those of the others. A
   * capture is of one device.
   * @throws as `openDevice`
   */
  static async open(config: Config, debug: DebugOptions, log: Log): Promise<EndpointDevices> {
    const devices = new EndpointDevices(config, debug, log);
    const open = (place: OpenOptions) => devices.#open(place);
    if (devices.#isNamed) {
      const { interface: name, addresses } = config;
      const device = await open({ ...(name !== undefined && { interface: name }), ...(addresses && { addresses }) });
      devices.#first = { device, close: () => device.close({ force: true }) };
    } else {
      openSharedBy(open);
      devices.#first = await useFirst();
    }
    return devices;
  }

  private constructor(config: Config, debug: DebugOptions, log: Log) {
    this.#config = config;
    this.#debug = debug;
    this.#log = log;
    this.failed = new Promise((_, reject) => {
      this.#fail = reject;
    });
    this.failed.catch(() => {});
  }

  /** The device that has the regions. */
  get first(): Device {
    return (this.#first as { device: Device }).device;
  }

  /** The only device; undefined: there is one for each interface. */
  get only(): Device | undefined {
    return this.#isNamed ? this.first : undefined;
  }

  /** Returns those that are open. */
  all(): readonly Device[] {
    this.#opened = this.#opened.filter((device) => !device.isClosed);
    return this.#opened;
  }

  /** Closes the first device. The services have been closed before. */
  async close(): Promise<void> {
    await this.#first?.close();
  }

  get #isNamed(): boolean {
    const { interface: name, addresses } = this.#config;
    return name !== undefined || addresses !== undefined || this.#debug.pcap !== undefined;
  }

  async #open(place: OpenOptions): Promise<Device> {
    const { link, mode, spin } = this.#config;
    const device = await openPublished({
      ...this.#debug,
      ...place,
      ...(link && { link }),
      ...(mode && { mode }),
      ...(spin !== undefined && { spin }),
      memoryBytes: cardMemory(this.#config),
    });
    this.#opened = [...this.all(), device];
    this.#report(device);
    return device;
  }

  /** Logs the device and what happens to it. */
  #report(device: Device): void {
    const log = this.#log;
    const { interface: name, activeMtu: mtu } = device.queryPort();
    const addresses = () => device.gids.map(({ address }) => address);
    log.info('open', {
      ...{ interface: name, link: device.query().link.kind, mode: device.mode },
      ...{ addresses: addresses(), mtu, notes: device.notes },
    });
    device.on('event', (event) => {
      const { type } = event;
      if (type === 'PORT_ERR' || type === 'PORT_ACTIVE') log.warn('port', { event: type, interface: name });
      if (type === 'GID_CHANGE') log.warn('addresses', { addresses: addresses(), interface: name });
      if (type === 'DEVICE_FATAL') this.#fail(failure(event.reason));
    });
  }
}
