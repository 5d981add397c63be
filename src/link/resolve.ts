/** Resolves the path to a peer: the kernel's route, and the MAC address of the neighbour that the route leads to. */
import { createSocket } from 'node:dgram';
import { ipBytes, ipText, isLinkLocal } from '../base/address.js';
import { VerbsError } from '../errors.js';
import { listInterfaces } from './interfaces.js';
import type { LinkInterface, Resolved } from './link.js';
import { neighbourMac, startDiscovery } from './neighbour.js';
import {
  AF_INET,
  AF_INET6,
  attributesOf,
  NetlinkError,
  type NetlinkMessage,
  NLM,
  netlinkRequest,
  numberIn,
  RTM,
  u32,
} from './netlink.js';

/** A route of the kernel. */
export interface Route {
  /** Index of the output interface. */
  readonly oif: number;
  /** Next hop; undefined if the destination is on the link itself. */
  readonly gateway?: Uint8Array;
  /** Our address that the kernel prefers; undefined if it has none. */
  readonly source?: Uint8Array;
  /** Whether the destination is an address of this host. */
  readonly isLocal: boolean;
  /** Hop limit that is set on the route. */
  readonly hopLimit?: number;
  /** MTU that is set on the route, in bytes of IP packet. */
  readonly mtu?: number;
}

/** Time that the kernel has to learn a neighbour's MAC address: it sends three requests, a second apart. */
export const NEIGHBOUR_TIMEOUT_MS = 3000;
const DISCARD_PORT = 9;

const RTN_LOCAL = 2;
const RTA = { DST: 1, SRC: 2, OIF: 4, GATEWAY: 5, PREFSRC: 7, METRICS: 8, VIA: 18, MTU: 2, HOPLIMIT: 10 } as const;

/**
 * Returns the kernel's route to a destination.
 * @param source selects the route as for a socket bound to it; undefined: none
 * @param oif index of an interface: only routes through this interface are considered
 * @throws NetlinkError, usually ENETUNREACH
 */
export function findRoute(destination: Uint8Array, source: Uint8Array | undefined, oif?: number): Route {
  const family = destination.length === 4 ? AF_INET : AF_INET6;
  const bits = destination.length * 8;
  const header = Uint8Array.of(family, bits, source ? bits : 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  const attributes: [number, Uint8Array][] = [[RTA.DST, destination]];
  if (source !== undefined) attributes.push([RTA.SRC, source]);
  if (oif !== undefined) attributes.push([RTA.OIF, u32(oif)]);
  const [reply] = netlinkRequest(RTM.GETROUTE, NLM.ACK, header, attributes);
  return routeOf(reply as NetlinkMessage);
}

/**
 * Returns path MTU and hop limit to a peer, for a link whose packets the kernel routes.
 * @throws VerbsError EHOSTUNREACH
 */
export function resolveRoute(iface: LinkInterface, destination: string, source: string): Resolved {
  const to = ipBytes(destination);
  const route = routeOrThrow(iface, to, ipBytes(source), isLinkLocal(to) ? iface.index : undefined);
  return { destMac: new Uint8Array(6), ...pathOf(route, iface) };
}

/** Options of `resolveNeighbour`. */
export interface NeighbourOptions {
  /** Aborts the wait for a neighbour when the link closes. */
  readonly closing: AbortSignal;
  /** Time that a neighbour has to reply (ms). Default: 3000. */
  readonly timeoutMs?: number | undefined;
  /** Whether the link reaches addresses of this host by a socket of the kernel: their MAC address is zero. */
  readonly hasLocalSockets?: boolean;
}

/**
 * Returns the path to a peer, for a link that writes the Ethernet header itself.
 * @throws VerbsError EHOSTUNREACH: no route, a route through another interface, or a neighbour that does not reply;
 * else the reason of `closing`
 */
export async function resolveNeighbour(
  iface: LinkInterface,
  destination: string,
  source: string,
  { closing, timeoutMs = NEIGHBOUR_TIMEOUT_MS, hasLocalSockets = false }: NeighbourOptions,
): Promise<Resolved> {
  const to = ipBytes(destination);
  const from = ipBytes(source);
  const local = (mac: Uint8Array): Resolved => ({ destMac: hasLocalSockets ? new Uint8Array(6) : mac });
  if (iface.addresses.includes(ipText(to))) return local(iface.mac);
  const { route, vlanTci } = routeVia(iface, to, from);
  if (route.isLocal) return local(localMac(iface, to));
  const nextHop = route.gateway ?? to;
  const search = () => discover(iface, nextHop, route.oif, destination, source);
  const destMac = await neighbourMac(nextHop, route.oif, search, timeoutMs, closing);
  if (destMac) return { destMac, ...(vlanTci !== undefined && { vlanTci }), ...pathOf(route, iface) };
  const what = nextHop.length === 4 ? 'ARP' : 'neighbour discovery';
  const who = route.gateway ? `${ipText(nextHop)}, the next hop to ${destination},` : destination;
  throw new VerbsError(
    'EHOSTUNREACH',
    `${who} did not reply to ${what} on ${iface.name} within ${timeoutMs} ms: check that it is up and in the network of ${source}`,
  );
}

/**
 * Returns the MAC address of this host's interface that has the address. The kernel sends no ARP for its own addresses.
 */
function localMac(iface: LinkInterface, to: Uint8Array): Uint8Array {
  const address = ipText(to);
  return (listInterfaces().find(({ addresses }) => addresses.includes(address)) ?? iface).mac;
}

/** Returns a route through the link's interface, or through a VLAN on it, whose tag the link adds itself. */
function routeVia(iface: LinkInterface, to: Uint8Array, from: Uint8Array): { route: Route; vlanTci?: number } {
  if (isLinkLocal(to)) return { route: routeOrThrow(iface, to, from, iface.index) };
  const route = routeOrThrow(iface, to, from);
  if (route.oif === iface.index || route.isLocal) return { route };
  const interfaces = listInterfaces();
  const other = interfaces.find(({ index }) => index === route.oif);
  if (other?.vlan?.parent === iface.index) return { route, vlanTci: other.vlan.id };
  // For a given interface without a route the kernel reports every address as on-link, so only a gateway proves a
  // route.
  const forced = routeOrThrow(iface, to, from, iface.index);
  if (forced.oif === iface.index && forced.gateway) return { route: forced };
  throw new VerbsError(
    'EHOSTUNREACH',
    `the route to ${ipText(to)} leaves by ${other?.name ?? `interface ${route.oif}`}, but the link is on ${iface.name}`,
  );
}

function routeOrThrow(iface: LinkInterface, to: Uint8Array, from: Uint8Array, oif?: number): Route {
  try {
    return findRoute(to, from, oif);
  } catch (cause) {
    if (!(cause instanceof NetlinkError)) throw cause;
    throw new VerbsError(
      'EHOSTUNREACH',
      `there is no route from ${ipText(from)} on ${iface.name} to ${ipText(to)} (${cause.code})`,
      { cause },
    );
  }
}

function pathOf(route: Route, iface: LinkInterface): Pick<Resolved, 'hopLimit' | 'pathMtu'> {
  return {
    ...(route.hopLimit !== undefined && { hopLimit: route.hopLimit }),
    ...(route.mtu !== undefined && route.mtu < iface.mtu && { pathMtu: route.mtu }),
  };
}

function routeOf({ body }: NetlinkMessage): Route {
  const attributes = attributesOf(body, 12);
  const metrics = attributesOf(attributes.get(RTA.METRICS) ?? new Uint8Array(0));
  // RTA_VIA: the IPv6 next hop of an IPv4 route, after two bytes of address family.
  const gateway = attributes.get(RTA.GATEWAY) ?? attributes.get(RTA.VIA)?.subarray(2);
  const source = attributes.get(RTA.PREFSRC);
  const hopLimit = numberIn(metrics, RTA.HOPLIMIT);
  const mtu = numberIn(metrics, RTA.MTU);
  return {
    oif: numberIn(attributes, RTA.OIF) ?? 0,
    isLocal: body[7] === RTN_LOCAL,
    ...(source && { source: Uint8Array.from(source) }),
    ...(gateway && { gateway }),
    ...(hopLimit && { hopLimit }),
    ...(mtu && { mtu }),
  };
}

/**
 * Makes the kernel search a neighbour: by a netlink request if that is permitted, else by sending a datagram. Without a
 * link-local address the kernel asks for an IPv6 neighbour from the source of a datagram only.
 */
async function discover(
  iface: LinkInterface,
  address: Uint8Array,
  ifindex: number,
  destination: string,
  source: string,
): Promise<void> {
  if (address.length === 4 || iface.addresses.some((own) => isLinkLocal(ipBytes(own)))) {
    try {
      startDiscovery(address, ifindex);
      return;
    } catch (error) {
      if (!(error instanceof NetlinkError)) throw error;
    }
  }
  await sendEmptyDatagram(destination, source);
}

/** Sends an empty datagram to the discard port. Ignores errors. */
async function sendEmptyDatagram(destination: string, source: string): Promise<void> {
  const socket = createSocket(ipBytes(destination).length === 4 ? 'udp4' : 'udp6');
  socket.on('error', () => {});
  await new Promise<void>((resolve) => {
    socket.bind(0, source, () => socket.send('', DISCARD_PORT, destination, () => resolve()));
    socket.once('error', () => resolve());
  });
  socket.close();
}
