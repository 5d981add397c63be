/** Where to send a frame for a peer: the kernel's route, and the neighbour that the route leads to. */
import { createSocket } from 'node:dgram';
import { setTimeout as sleep } from 'node:timers/promises';
import { VerbsError } from '../errors.js';
import { ipBytes, ipText, isLinkLocal } from './address.js';
import { listInterfaces } from './interfaces.js';
import type { LinkInterface, Resolved } from './link.js';
import {
  AF_INET,
  AF_INET6,
  ask,
  attributesOf,
  NetlinkError,
  type NetlinkMessage,
  NLM,
  numberIn,
  RTM,
  u32,
  viewOf,
} from './netlink.js';

export interface Route {
  /** Index of the interface that packets leave by. */
  readonly oif: number;
  /** Next hop, or undefined when the destination is on the link itself. */
  readonly gateway?: Uint8Array;
  /** The destination is an address of this host. */
  readonly isLocal: boolean;
  readonly hopLimit?: number;
  readonly mtu?: number;
}

/** How long the kernel may take to learn a neighbour's MAC; it asks three times, a second apart. */
export const NEIGHBOUR_TIMEOUT_MS = 3000;
const POLL_MS = 3;
const DISCARD_PORT = 9;

const RTN_LOCAL = 2;
const RTA = { DST: 1, SRC: 2, OIF: 4, GATEWAY: 5, METRICS: 8, VIA: 18, MTU: 2, HOPLIMIT: 10 } as const;
const NDA = { DST: 1, LLADDR: 2 } as const;
const NUD = { STALE: 0x04, FAILED: 0x20, USABLE: 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80 } as const;
const NTF_USE = 1;

/**
 * The kernel's route. The source address chooses among routes as it does for a socket bound to it.
 * @param oif look only at routes through this interface
 * @throws NetlinkError, ENETUNREACH mostly
 */
export function findRoute(destination: Uint8Array, source: Uint8Array, oif?: number): Route {
  const family = destination.length === 4 ? AF_INET : AF_INET6;
  const bits = destination.length * 8;
  const header = Uint8Array.of(family, bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  const attributes: [number, Uint8Array][] = [
    [RTA.DST, destination],
    [RTA.SRC, source],
  ];
  if (oif !== undefined) attributes.push([RTA.OIF, u32(oif)]);
  const [answer] = ask(RTM.GETROUTE, NLM.ACK, header, attributes);
  return routeOf(answer as NetlinkMessage);
}

/**
 * Path MTU and hop limit towards a peer, for a link whose frames the kernel routes itself.
 * @throws VerbsError EHOSTUNREACH
 */
export function resolveRoute(end: LinkInterface, destination: string, source: string): Resolved {
  const to = ipBytes(destination);
  const route = routeOrThrow(end, to, ipBytes(source), isLinkLocal(to) ? end.index : undefined);
  return { destMac: new Uint8Array(6), ...path(route, end) };
}

/**
 * The MAC that frames for a peer go to, when they leave by the link's own interface.
 * @param closing of the link: nobody waits for a neighbour any more
 * @throws VerbsError EHOSTUNREACH: no route, a route elsewhere, or a neighbour that does not answer; the signal's reason
 */
export async function resolveNeighbour(
  end: LinkInterface,
  destination: string,
  source: string,
  closing: AbortSignal,
  timeoutMs = NEIGHBOUR_TIMEOUT_MS,
): Promise<Resolved> {
  const to = ipBytes(destination);
  const from = ipBytes(source);
  if (end.addresses.includes(ipText(to))) return { destMac: end.mac };
  const { route, vlanTci } = routeThrough(end, to, from);
  if (route.isLocal) return { destMac: localMac(end, to) };
  const nextHop = route.gateway ?? to;
  const promptKernel = () => prompt(nextHop, route.oif, destination, source);
  const destMac = await macOf(nextHop, route.oif, promptKernel, timeoutMs, closing);
  if (destMac) return { destMac, ...(vlanTci !== undefined && { vlanTci }), ...path(route, end) };
  const what = nextHop.length === 4 ? 'ARP' : 'neighbour discovery';
  const who = route.gateway ? `${ipText(nextHop)}, the next hop to ${destination},` : destination;
  throw new VerbsError(
    'EHOSTUNREACH',
    `${who} did not answer ${what} on ${end.name} in ${timeoutMs} ms; is it up, and in the same network as ${source}?`,
  );
}

/** Another interface of this host may be at the far end of the cable; the kernel would not ask it by ARP. */
function localMac(end: LinkInterface, to: Uint8Array): Uint8Array {
  const address = ipText(to);
  return (listInterfaces().find(({ addresses }) => addresses.includes(address)) ?? end).mac;
}

/** A route by the link's interface, or by a VLAN on it, whose frames the link can tag itself. */
function routeThrough(end: LinkInterface, to: Uint8Array, from: Uint8Array): { route: Route; vlanTci?: number } {
  if (isLinkLocal(to)) return { route: routeOrThrow(end, to, from, end.index) };
  const route = routeOrThrow(end, to, from);
  if (route.oif === end.index || route.isLocal) return { route };
  const interfaces = listInterfaces();
  const other = interfaces.find(({ index }) => index === route.oif);
  if (other?.vlan?.parent === end.index) return { route, vlanTci: other.vlan.id };
  // Asked for one interface, the kernel calls everything on-link when it has no route there: only a gateway is a route.
  const forced = routeOrThrow(end, to, from, end.index);
  if (forced.oif === end.index && forced.gateway) return { route: forced };
  throw new VerbsError(
    'EHOSTUNREACH',
    `the route to ${ipText(to)} goes by ${other?.name ?? `interface ${route.oif}`}, but the link is on ${end.name}`,
  );
}

function routeOrThrow(end: LinkInterface, to: Uint8Array, from: Uint8Array, oif?: number): Route {
  try {
    return findRoute(to, from, oif);
  } catch (cause) {
    if (!(cause instanceof NetlinkError)) throw cause;
    throw new VerbsError(
      'EHOSTUNREACH',
      `there is no route from ${ipText(from)} on ${end.name} to ${ipText(to)} (${cause.code})`,
      { cause },
    );
  }
}

function path(route: Route, end: LinkInterface): Pick<Resolved, 'hopLimit' | 'pathMtu'> {
  return {
    ...(route.hopLimit !== undefined && { hopLimit: route.hopLimit }),
    ...(route.mtu !== undefined && route.mtu < end.mtu && { pathMtu: route.mtu }),
  };
}

function routeOf({ body }: NetlinkMessage): Route {
  const attributes = attributesOf(body, 12);
  const metrics = attributesOf(attributes.get(RTA.METRICS) ?? new Uint8Array(0));
  // VIA: an IPv4 route whose next hop is an IPv6 address, after two bytes of family.
  const gateway = attributes.get(RTA.GATEWAY) ?? attributes.get(RTA.VIA)?.subarray(2);
  const hopLimit = numberIn(metrics, RTA.HOPLIMIT);
  const mtu = numberIn(metrics, RTA.MTU);
  return {
    oif: numberIn(attributes, RTA.OIF) ?? 0,
    isLocal: body[7] === RTN_LOCAL,
    ...(gateway && { gateway }),
    ...(hopLimit && { hopLimit }),
    ...(mtu && { mtu }),
  };
}

/** @returns the neighbour's MAC, or undefined when it is not known in time */
async function macOf(
  address: Uint8Array,
  ifindex: number,
  promptKernel: () => Promise<void>,
  timeoutMs: number,
  closing: AbortSignal,
): Promise<Uint8Array | undefined> {
  const end = performance.now() + timeoutMs;
  const known = neighbour(address, ifindex);
  if (known.mac && (known.state & NUD.STALE) === 0) return known.mac;
  await promptKernel();
  // A stale entry is what the kernel itself would use while it asks again.
  if (known.mac) return known.mac;
  while (performance.now() < end) {
    const { mac, state } = neighbour(address, ifindex);
    if (mac) return mac;
    if ((state & NUD.FAILED) !== 0) return undefined;
    await sleep(POLL_MS);
    closing.throwIfAborted();
  }
  return undefined;
}

function neighbour(address: Uint8Array, ifindex: number): { mac?: Uint8Array; state: number } {
  let answer: NetlinkMessage | undefined;
  try {
    [answer] = ask(RTM.GETNEIGH, NLM.ACK, neighbourHeader(address, ifindex), [[NDA.DST, address]]);
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
  }
  if (!answer) return { state: 0 };
  const state = viewOf(answer.body).getUint16(8, true);
  const mac = attributesOf(answer.body, 12).get(NDA.LLADDR);
  return (state & NUD.USABLE) !== 0 && mac?.length === 6 ? { mac: Uint8Array.from(mac), state } : { state };
}

/** Makes the kernel ask for the neighbour: by request where that is permitted, otherwise by giving it a datagram. */
async function prompt(address: Uint8Array, ifindex: number, destination: string, source: string): Promise<void> {
  try {
    ask(RTM.NEWNEIGH, NLM.ACK | NLM.CREATE, neighbourHeader(address, ifindex, NTF_USE), [[NDA.DST, address]]);
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    await sendNothing(destination, source);
  }
}

function neighbourHeader(address: Uint8Array, ifindex: number, flags = 0): Uint8Array {
  const header = new Uint8Array(12);
  header[0] = address.length === 4 ? AF_INET : AF_INET6;
  header.set(u32(ifindex), 4);
  header[10] = flags;
  return header;
}

/** An empty datagram to the discard port; whether it could be sent is of no interest. */
async function sendNothing(destination: string, source: string): Promise<void> {
  const socket = createSocket(ipBytes(destination).length === 4 ? 'udp4' : 'udp6');
  socket.on('error', () => {});
  await new Promise<void>((resolve) => {
    socket.bind(0, source, () => socket.send('', DISCARD_PORT, destination, () => resolve()));
    socket.once('error', () => resolve());
  });
  socket.close();
}
