/** Two devices on one hub. */
import { afterEach, beforeEach } from 'vitest';
import { createMemoryHub, type Device, type MemoryHub, type OpenOptions, openDevice } from '../../src/index.js';
import { HOST, OWN_HOST } from './hosts.js';

export { HOST, OWN_HOST };

/** The device of the client, at `OWN_HOST`. */
export let device: Device;
/** The device of the server, at `HOST`. */
export let peer: Device;

let hub: MemoryHub;

/** Opens one more device, which the test closes. */
export const openAt = (address: string, options: OpenOptions = {}): Promise<Device> =>
  openDevice({ hub, addresses: [address], ...options });

/** Each test of the file gets devices of its own. */
export function useDevices(): void {
  beforeEach(async () => {
    hub = createMemoryHub();
    device = await openAt(OWN_HOST);
    peer = await openAt(HOST);
  });
  afterEach(async () => {
    for (const one of [device, peer]) await one.close({ force: true });
  });
}
