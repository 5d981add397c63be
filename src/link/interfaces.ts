/** Lists the kernel's network interfaces and their addresses (rtnetlink(7)). */

import { ipBytes, ipText } from '../base/address.js';
import { invalidValue, VerbsError } from '../errors.js';
import type { LinkInterface } from './link.js';
import { type Attributes, attributesOf, NLM, netlinkRequest, numberIn, RTM, textIn, viewOf } from './netlink.js';
import { checkZone, isInZone } from './zones.js';

/** An IP address of an interface. */
export interface InterfaceAddress {
  readonly address: string;
  /** Bits of the network part. */
  readonly prefixLength: number;
  /** Whether the kernel still asks whether another host has the address: no socket can be bound to it (RFC 4862). */
  readonly isTentative: boolean;
  /** Scope of the address: 0 = global, 253 = link, 254 = host (`rt_scope` of rtnetlink). */
  readonly scope: number;
}

/** A network interface of the host. */
export interface HostInterface extends LinkInterface {
  readonly isLoopback: boolean;
  /** Whether the interface carries Ethernet frames. The loopback interface does, too. */
  readonly isEthernet: boolean;
  /** Whether it is a port of a bridge or bond, which has the addresses and receives the packets. */
  readonly isPort: boolean;
  /** The addresses with prefix length and scope. */
  readonly details: readonly InterfaceAddress[];
  /** For a VLAN: its tag, and the index of the interface that carries the tagged frames. */
  readonly vlan?: { readonly id: number; readonly parent: number };
}

const IFF_UP = 0x1;
const IFF_LOOPBACK = 0x8;
const IFF_LOWER_UP = 0x10000;
const ARPHRD_ETHER = 1;
const IFLA = { ADDRESS: 1, IFNAME: 3, MTU: 4, LINK: 5, LINKINFO: 18, VLAN_ID: 1 } as const;
const INFO = { KIND: 1, DATA: 2, SLAVE_KIND: 4 } as const;
/** Kinds of interfaces whose ports receive no IP packets of their own. Those of a VRF do. */
const PORT_KINDS = ['bridge', 'bond', 'team'];
const IFA = { ADDRESS: 1, LOCAL: 2, FLAGS: 8, F_OPTIMISTIC: 0x4, F_DADFAILED: 0x8, F_TENTATIVE: 0x40 } as const;

/** Returns all interfaces of this network namespace. */
export function listInterfaces(): HostInterface[] {
  const addresses = listAddresses();
  return netlinkRequest(RTM.GETLINK, NLM.DUMP, new Uint8Array(16)).map(({ body }) => {
    const view = viewOf(body);
    const attributes = attributesOf(body, 16);
    const index = view.getInt32(4, true);
    const flags = view.getUint32(8, true);
    const isLoopback = (flags & IFF_LOOPBACK) !== 0;
    const details = addresses.get(index) ?? [];
    const info = attributesOf(attributes.get(IFLA.LINKINFO) ?? new Uint8Array(0));
    const vlan = vlanOf(attributes, info);
    return {
      name: textIn(attributes, IFLA.IFNAME) ?? String(index),
      index,
      mtu: numberIn(attributes, IFLA.MTU) ?? 0,
      mac: Uint8Array.from(attributes.get(IFLA.ADDRESS) ?? new Uint8Array(6)),
      addresses: details.map((detail) => detail.address),
      up: (flags & IFF_UP) !== 0 && (flags & IFF_LOWER_UP) !== 0,
      isLoopback,
      isEthernet: isLoopback || view.getUint16(2, true) === ARPHRD_ETHER,
      isPort: PORT_KINDS.includes(textIn(info, INFO.SLAVE_KIND) ?? ''),
      details,
      ...(vlan && { vlan }),
    };
  });
}

/**
 * Returns the interfaces that a device can use: they are up, have an address, and are no port of another interface.
 * Loopback comes last.
 */
export function usableInterfaces(all: readonly HostInterface[] = listInterfaces()): HostInterface[] {
  return all
    .filter(({ up, addresses, isPort }) => up && addresses.length > 0 && !isPort)
    .sort((a, b) => Number(a.isLoopback) - Number(b.isLoopback));
}

/** Returns the first of them. @throws VerbsError ENODEV, with the names of the interfaces that exist */
export function firstUsable(): HostInterface {
  const all = listInterfaces();
  const [found] = usableInterfaces(all);
  if (found !== undefined) return found;
  throw new VerbsError('ENODEV', `no network interface is up and has an address (${all.map(({ name }) => name)})`);
}

/** Returns the interface with a name. @throws VerbsError ENODEV, with the names of those that exist */
export function interfaceByName(name: string): HostInterface {
  const all = listInterfaces();
  const found = all.find((candidate) => candidate.name === name);
  if (!found) throw new VerbsError('ENODEV', `there is no interface '${name}'; the interfaces are ${listNames(all)}`);
  return found;
}

/**
 * Reads an interface again. An interface that no longer exists is down and has no addresses.
 * @param wanted addresses to keep in the result; undefined = all
 */
export function refreshInterface(known: HostInterface, wanted: readonly string[] | undefined): HostInterface {
  const found = listInterfaces().find(({ index }) => index === known.index);
  if (!found) return { ...known, up: false, addresses: [], details: [] };
  if (!wanted) return found;
  return {
    ...found,
    addresses: wanted.filter((address) => hasAddress(found, address)),
    details: found.details.filter(({ address }) => wanted.includes(address)),
  };
}

/** Returns an interface with the addresses that a socket can be bound to. */
export function withBindableAddresses(iface: HostInterface): HostInterface {
  const isBindable = (address: string) =>
    !iface.details.some((detail) => detail.address === address && detail.isTentative);
  return {
    ...iface,
    addresses: iface.addresses.filter(isBindable),
    details: iface.details.filter(({ isTentative }) => !isTentative),
  };
}

/**
 * Returns the interface that has a local address; its zone decides where several interfaces have it.
 * @throws VerbsError EADDRNOTAVAIL, with the existing addresses
 */
export function interfaceByAddress(address: string): HostInterface {
  const wanted = ipText(ipBytes(address));
  const all = listInterfaces();
  const found = all.find((candidate) => isInZone(address, candidate) && hasAddress(candidate, wanted));
  if (!found)
    throw new VerbsError(
      'EADDRNOTAVAIL',
      `no interface has the address ${address}; the interfaces are ${listNames(all)}`,
    );
  return found;
}

/**
 * Returns the interface that the options of a link name, with the addresses that the link uses.
 * @throws VerbsError ENODEV, EADDRNOTAVAIL; TypeError if the options name neither an interface nor an address
 */
export function chooseInterface(options: { interface?: string; addresses?: readonly string[] }): HostInterface {
  const { addresses } = options;
  if (options.interface === undefined && !addresses?.length)
    throw invalidValue('the link needs the name of an interface, or a local address');
  const found =
    options.interface === undefined ? interfaceByAddress(addresses?.[0] as string) : interfaceByName(options.interface);
  if (found.addresses.length === 0)
    throw new VerbsError('EADDRNOTAVAIL', `${found.name} has no IP address, so it has no GID`);
  if (!addresses?.length) return found;
  for (const address of addresses) checkZone(address, found);
  const wanted = addresses.map((address) => ipText(ipBytes(address)));
  const missing = wanted.find((address) => !hasAddress(found, address));
  if (missing !== undefined)
    throw new VerbsError(
      'EADDRNOTAVAIL',
      `${found.name} does not have the address ${missing}; it has ${found.addresses.join(', ')}`,
    );
  return { ...found, addresses: wanted, details: found.details.filter(({ address }) => wanted.includes(address)) };
}

/** On a loopback interface all of an IPv4 address's network is local: 127.0.0.2 belongs to 127.0.0.1/8. */
function hasAddress({ addresses, details, isLoopback }: HostInterface, wanted: string): boolean {
  if (addresses.includes(wanted)) return true;
  const bytes = ipBytes(wanted);
  if (!isLoopback || bytes.length !== 4) return false;
  const number = (ip: Uint8Array) => viewOf(ip).getUint32(0);
  return details.some(({ address, prefixLength }) => {
    const own = ipBytes(address);
    return own.length === 4 && prefixLength > 0 && (number(own) ^ number(bytes)) >>> (32 - prefixLength) === 0;
  });
}

function listNames(all: readonly HostInterface[]): string {
  if (all.length === 0) return 'none';
  return all.map(({ name, addresses }) => `${name} (${addresses.join(', ') || 'no address'})`).join(', ');
}

function listAddresses(): Map<number, InterfaceAddress[]> {
  const found = new Map<number, InterfaceAddress[]>();
  for (const { body } of netlinkRequest(RTM.GETADDR, NLM.DUMP, new Uint8Array(8))) {
    const attributes = attributesOf(body, 8);
    // On a point-to-point interface IFA_ADDRESS is the peer's address.
    const bytes = attributes.get(IFA.LOCAL) ?? attributes.get(IFA.ADDRESS);
    const flags = numberIn(attributes, IFA.FLAGS) ?? 0;
    if (!bytes || (flags & IFA.F_DADFAILED) !== 0) continue;
    const index = viewOf(body).getUint32(4, true);
    const list = found.get(index) ?? [];
    const isTentative = (flags & IFA.F_TENTATIVE) !== 0 && (flags & IFA.F_OPTIMISTIC) === 0;
    list.push({ address: ipText(bytes), prefixLength: body[1] as number, scope: body[3] as number, isTentative });
    found.set(index, list);
  }
  return found;
}

/** @param info attributes of the kind of the interface */
function vlanOf(attributes: Attributes, info: Attributes): HostInterface['vlan'] {
  const parent = numberIn(attributes, IFLA.LINK);
  const data = info.get(INFO.DATA);
  if (parent === undefined || textIn(info, INFO.KIND) !== 'vlan' || !data) return undefined;
  const id = numberIn(attributesOf(data), IFLA.VLAN_ID);
  return id === undefined ? undefined : { id, parent };
}
