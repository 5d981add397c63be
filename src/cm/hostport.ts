/**
 * Ports for services that are on several devices, or on none yet. They are free on all interfaces of the host, as far
 * as its other programs of the same user publish theirs.
 */
import { randomInt } from 'node:crypto';
import type { Closable } from '../base/scope.js';
import { listInterfaces } from '../link/interfaces.js';
import { interfaceNames } from '../link/names.js';
import { randomFreePort } from './boundports.js';
import type { PortSpaceName } from './core/serviceid.js';
import { serviceName } from './sharedaddress.js';

/** The port of a service. */
export interface ServicePort extends Closable {
  /** The port; 0 when a device chooses it. */
  readonly port: number;
  /** Ends the reservation, if there is one. */
  close(): void;
}

const reserved = new Set<string>();

/**
 * Returns the port of a service. For port 0 a free one is reserved, until `close`, unless the service is on a device of
 * the program, which has ports of its own.
 * @throws VerbsError EADDRINUSE when no port is free
 */
export function servicePort(space: PortSpaceName, port: number, hasDevice: boolean): ServicePort {
  if (port !== 0 || hasDevice) return { port, close: () => {} };
  const all = listInterfaces().map(({ index, addresses }) => ({ names: interfaceNames(index), addresses }));
  const isTaken = (candidate: number) =>
    reserved.has(`${space}/${candidate}`) ||
    all.some(({ names, addresses }) =>
      addresses.some((address) => names.isBound(serviceName(space, candidate, address))),
    );
  const chosen = randomFreePort(space, () => randomInt(2 ** 24), isTaken);
  const key = `${space}/${chosen}`;
  reserved.add(key);
  let isReserved = true;
  return {
    port: chosen,
    close: () => {
      if (isReserved) reserved.delete(key);
      isReserved = false;
    },
  };
}
