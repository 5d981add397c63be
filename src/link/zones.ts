/** Zones of IPv6 addresses (RFC 4007): `fe80::1%eth0` is an address on the interface eth0. */
import { ipBytes, isLinkLocal } from '../base/address.js';
import { VerbsError } from '../errors.js';
import type { LinkInterface } from './link.js';

type Named = Pick<LinkInterface, 'name' | 'index'>;

/** Returns the zone of an address: name or index of an interface; undefined without one. */
export function zoneOf(address: string): string | undefined {
  return /%(.+)$/.exec(address)?.[1];
}

/** Returns whether an address is in the zone of an interface. An address without a zone is in all. */
export function isInZone(address: string, { name, index }: Named): boolean {
  const zone = zoneOf(address);
  return zone === undefined || zone === name || zone === String(index);
}

/** Refuses an address whose zone is another interface. @throws VerbsError EADDRNOTAVAIL */
export function checkZone(address: string, iface: Named): void {
  if (isInZone(address, iface)) return;
  throw new VerbsError(
    'EADDRNOTAVAIL',
    `${address} is an address on the interface ${zoneOf(address)}, but the device is on ${iface.name}`,
  );
}

/** Returns an address with its zone where it needs one: a link-local address, as Node.js shows it. */
export function withZone(address: string, { name }: Named): string {
  return isLinkLocal(ipBytes(address)) ? `${address}%${name}` : address;
}
