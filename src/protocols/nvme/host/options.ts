/** Options of a host's connection: their checks and defaults. */
import { randomUUID } from 'node:crypto';
import { type Checks, checkOptions, hostName, integer, required } from '../../../base/options.js';
import { MAX_TIMER_MS } from '../../../base/waiting.js';
import { openedDevice } from '../../../deviceuse.js';
import type { Device } from '../../../index.js';
import { checkNqn, uuidBytes, uuidNqn } from '../names.js';
import { DISCOVERY_NQN, NVME_PORT } from '../wire.js';

/** Options of `discover`. */
export interface NvmeDiscoverOptions {
  /** Name or address of the target. */
  readonly host: string;
  /** Port of rdma_cm. Default 4420. */
  readonly port?: number;
  /** Device. Default: one on the route to the target. */
  readonly device?: Device;
  /** NQN of this host. Default: one made of `hostId`. */
  readonly hostNqn?: string;
  /** UUID of this host. Default: a random one for each process. */
  readonly hostId?: string;
  /** Time that the target has for a command in ms. Default 30,000. */
  readonly timeout?: number;
}

/** Options of `connect`. */
export interface NvmeConnectOptions extends NvmeDiscoverOptions {
  /** NQN of the subsystem. */
  readonly nqn: string;
  /** I/O queues, 1 to 128; the target may allow fewer. Default 1. */
  readonly ioQueues?: number;
  /** Commands that an I/O queue holds, 2 to 1024; the target may allow fewer. Default 128. */
  readonly queueSize?: number;
  /** Time in ms after which each end takes the other for dead; 0 = never. Default 5000. */
  readonly keepAlive?: number;
}

const HOST_ID = randomUUID();

/** Complete options. */
export interface ConnectSettings extends Required<Omit<NvmeConnectOptions, 'device' | 'hostId'>> {
  readonly device: Device | undefined;
  readonly hostId: Buffer;
}

const DISCOVER_CHECKS: Checks<NvmeDiscoverOptions> = {
  host: required(hostName),
  port: integer(1, 65535),
  device: openedDevice,
  hostNqn: checkNqn,
  hostId: uuidBytes,
  timeout: integer(1, MAX_TIMER_MS),
};

const CHECKS: Checks<NvmeConnectOptions> = {
  ...DISCOVER_CHECKS,
  nqn: required(checkNqn),
  ioQueues: integer(1, 128),
  queueSize: integer(2, 1024),
  keepAlive: integer(0, 2 ** 32 - 1),
};

/** @throws TypeError, RangeError for wrong options */
export function connectSettings(options: NvmeConnectOptions): ConnectSettings {
  return settingsOf(checkOptions('connect', options, CHECKS));
}

/** Returns the settings of a connection to the discovery subsystem. @throws as `connectSettings` */
export function discoverSettings(options: NvmeDiscoverOptions): ConnectSettings {
  return settingsOf({ ...checkOptions('discover', options, DISCOVER_CHECKS), nqn: DISCOVERY_NQN, keepAlive: 0 });
}

function settingsOf(checked: NvmeConnectOptions): ConnectSettings {
  const { device, host, port = NVME_PORT, nqn, hostId = HOST_ID, hostNqn = uuidNqn(hostId) } = checked;
  const { ioQueues = 1, queueSize = 128, keepAlive = 5000, timeout = 30_000 } = checked;
  const id = uuidBytes('hostId', hostId);
  return { device, host, port, nqn, hostNqn, hostId: id, ioQueues, queueSize, keepAlive, timeout };
}
