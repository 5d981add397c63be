/** Finds the address of a host, and the local address from which the kernel would reach it. */
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { ipBytes, ipText, isLinkLocal } from '../base/address.js';
import { VerbsError } from '../errors.js';
import { listInterfaces } from './interfaces.js';
import { NetlinkError } from './netlink.js';
import { findRoute, type Route } from './resolve.js';
import { isInZone, withZone, zoneOf } from './zones.js';

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
 * Returns the local address from which the kernel would reach a host, with its zone if it is link-local. Sends nothing.
 * @throws VerbsError EHOSTUNREACH when the name cannot be resolved, or there is no route
 */
export async function addressTowards(host: string): Promise<string> {
  return sourceTowards(await lookupHost(host));
}

/** As `addressTowards`, of an IP address. */
export function sourceTowards(address: string): string {
  const bytes = ipBytes(address);
  const isZoneNeeded = isLinkLocal(bytes);
  if (isZoneNeeded && zoneOf(address) === undefined)
    throw noRoute(address, `it is link-local and needs the zone of an interface, such as ${address}%eth0`);
  const zone = isZoneNeeded ? listInterfaces().find((iface) => isInZone(address, iface)) : undefined;
  if (isZoneNeeded && zone === undefined) throw noRoute(address, `there is no interface '${zoneOf(address)}'`);
  const { source } = routeTo(bytes, address, zone?.index);
  if (source === undefined) throw noRoute(address, 'the interface has no address');
  return zone === undefined ? ipText(source) : withZone(ipText(source), zone);
}

function routeTo(bytes: Uint8Array, address: string, oif: number | undefined): Route {
  try {
    return findRoute(bytes, undefined, oif);
  } catch (cause) {
    if (!(cause instanceof NetlinkError)) throw cause;
    throw noRoute(address, cause.code, cause);
  }
}

function noRoute(address: string, reason: string, cause?: Error): VerbsError {
  const details = { syscall: 'connect', address, ...(cause && { cause }) };
  return new VerbsError('EHOSTUNREACH', `there is no route to ${address} (${reason})`, details);
}
