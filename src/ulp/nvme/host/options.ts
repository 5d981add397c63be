/** Options of a host's connection: their checks and defaults. */
import { randomUUID } from 'node:crypto';
import type { Device } from '../../../index.js';
import { checkInteger, checkPort, wrongType } from '../../errors.js';
import { checkNqn, uuidBytes, uuidNqn } from '../names.js';
import { NVME_PORT } from '../wire.js';

/** Options of `discover`. */
export interface DiscoverOptions {
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
export interface ConnectOptions extends DiscoverOptions {
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
export interface ConnectSettings extends Required<Omit<ConnectOptions, 'device' | 'hostId'>> {
  readonly device: Device | undefined;
  readonly hostId: Buffer;
}

/** @throws TypeError, RangeError for wrong options */
export function connectSettings(options: ConnectOptions): ConnectSettings {
  const { device, host, port = NVME_PORT, nqn, hostId = HOST_ID, hostNqn = uuidNqn(hostId) } = options;
  const { ioQueues = 1, queueSize = 128, keepAlive = 5000, timeout = 30_000 } = options;
  if (typeof host !== 'string' || host === '') throw wrongType('host', host, 'a name or an address');
  checkPort(port, 1);
  checkNqn('nqn', nqn);
  const id = uuidBytes('hostId', hostId);
  checkNqn('hostNqn', hostNqn);
  checkInteger('ioQueues', ioQueues, 1, 128);
  checkInteger('queueSize', queueSize, 2, 1024);
  checkInteger('keepAlive', keepAlive, 0, 2 ** 32 - 1);
  checkInteger('timeout', timeout, 1, 2 ** 31 - 1);
  return { device, host, port, nqn, hostNqn, hostId: id, ioQueues, queueSize, keepAlive, timeout };
}
