/** Two devices on one hub. */
import { afterEach, beforeEach } from 'vitest';
import { createMemoryHub, type Device, openDevice } from '../../src/index.js';
import { HOST, OWN_HOST } from './hosts.js';

export { HOST, OWN_HOST };

/** The device of the client, at `OWN_HOST`. */
export let device: Device;
/** The device of the server, at `HOST`. */
export let peer: Device;

/** Each test of the file gets devices of its own. */
export function useDevices(): void {
  beforeEach(async () => {
    const hub = createMemoryHub();
    device = await openDevice({ hub, addresses: [OWN_HOST] });
    peer = await openDevice({ hub, addresses: [HOST] });
  });
  afterEach(async () => {
    for (const one of [device, peer]) await one.close({ force: true });
  });
}
