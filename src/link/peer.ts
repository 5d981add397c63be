/** Finds the address of a host, and the local address from which the kernel would reach it. */
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { isIP } from 'node:net';
import { VerbsError } from '../errors.js';
import { ROCE_PORT } from './headers.js';

/** Returns the IP address of a host. @throws VerbsError EHOSTUNREACH when the name cannot be resolved */
export async function lookupHost(host: string): Promise<string> {
  if (isIP(host) !== 0) return host;
  try {
    return (await lookup(host)).address;
  } catch (cause) {
    throw new VerbsError('EHOSTUNREACH', `no address found for '${host}'`, {
      cause,
      syscall: 'getaddrinfo',
      address: host,
    });
  }
}

/**
 * Returns the local address from which the kernel would reach a host. Sends nothing.
 * @throws VerbsError EHOSTUNREACH when the name cannot be resolved, or there is no route
 */
export async function addressTowards(host: string): Promise<string> {
  const address = await lookupHost(host);
  const socket = createSocket(isIP(address) === 6 ? 'udp6' : 'udp4');
  try {
    socket.connect(ROCE_PORT, address);
    await once(socket, 'connect');
    return socket.address().address.replace(/%.*/, '');
  } catch (cause) {
    const reason = (cause as NodeJS.ErrnoException).code;
    throw new VerbsError('EHOSTUNREACH', `there is no route to ${host} (${reason})`, {
      cause,
      syscall: 'connect',
      address,
    });
  } finally {
    socket.close();
  }
}
