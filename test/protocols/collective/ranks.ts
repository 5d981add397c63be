/** Communicators of several ranks in one process, each with a device on one hub. */
import { afterEach } from 'vitest';
import { type Communicator, type CommunicatorOptions, openCommunicator } from '../../../src/collective.js';
import { createMemoryHub, type Device, type OpenOptions, openDevice } from '../../../src/index.js';

export const ROOT_HOST = '10.0.0.1';

const devices: Device[] = [];
const communicators: Communicator[] = [];

afterEach(async () => {
  await Promise.all(communicators.splice(0).map((communicator) => communicator.close()));
  for (const device of devices.splice(0)) await device.close({ force: true });
});

/** Opens devices at 10.0.0.1, 10.0.0.2 and so on, which are closed after the test. */
export async function openDevices(count: number, options: OpenOptions = {}): Promise<Device[]> {
  const hub = createMemoryHub();
  const opened: Device[] = [];
  for (let i = 0; i < count; i++)
    opened.push(await openDevice({ hub, addresses: [`10.0.0.${i + 1}`], memoryBytes: 2 ** 26, ...options }));
  devices.push(...opened);
  return opened;
}

/** Options of a rank whose rank 0 is at 10.0.0.1. */
export function optionsOf(rank: number, size: number, device: Device): CommunicatorOptions {
  return { rank, size, device, host: ROOT_HOST, reduceThread: 'own' };
}

/** The communicator is closed after the test. */
export async function join(options: CommunicatorOptions): Promise<Communicator> {
  const communicator = await openCommunicator(options);
  communicators.push(communicator);
  return communicator;
}

/** Opens a communicator with a device for each rank. */
export async function openRanks(
  size: number,
  options: Partial<CommunicatorOptions> = {},
  ofDevices: OpenOptions = {},
): Promise<Communicator[]> {
  const opened = await openDevices(size, ofDevices);
  return Promise.all(opened.map((device, rank) => join({ ...optionsOf(rank, size, device), ...options })));
}
