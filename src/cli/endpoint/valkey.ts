/** A proxy to a server of Valkey or Redis over TCP. */
import type { Device } from '../../index.js';
import { createProxy } from '../../valkey.js';
import type { Log } from './log.js';
import type { ValkeyConfig } from './schema.js';
import type { Service } from './service.js';

/** @param device the only one; undefined: all interfaces @throws VerbsError EADDRINUSE */
export async function openValkey(device: Device | undefined, { port, to }: ValkeyConfig, log: Log): Promise<Service> {
  const about = { service: 'valkey', port };
  const proxy = await createProxy({
    ...(device && { device }),
    port,
    to,
    onError: (error, { remoteAddress }) => log.error('not served', error, { ...about, client: remoteAddress }),
  });
  return { about: { ...about, to: `${to.host}:${to.port}` }, close: () => proxy.close() };
}
