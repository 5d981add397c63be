/**
 * The kernel's neighbours: their MAC addresses (rtnetlink(7): RTM_GETNEIGH). All that wait for the same neighbour share
 * one search, which the kernel's notification ends. A neighbour that has not replied is not searched again for a while.
 */

import { macText } from '../base/address.js';
import { clearInterval, clearTimeout, performance, setInterval, setTimeout } from '../base/timers.js';
import { watchNeighbours, watchRoutes } from './monitor.js';
import {
  AF_INET,
  AF_INET6,
  attributesOf,
  NetlinkError,
  type NetlinkMessage,
  NLM,
  netlinkRequest,
  RTM,
  u32,
  viewOf,
} from './netlink.js';

/** A neighbour that has not replied is not searched again for this time (ms), unless the kernel learns of it. */
const FAILURE_TIME = 1000;
/** Neighbours that have not replied, of which the oldest is forgotten first. */
const MAX_FAILURES = 1024;
/** Interval at which all searches are checked where the kernel sends no notifications (ms). */
const POLL_MS = 10;

const NDA = { DST: 1, LLADDR: 2 } as const;
const NUD = { STALE: 0x04, FAILED: 0x20, USABLE: 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80 } as const;
const NTF_USE = 1;

/** The kernel's entry of a neighbour. */
interface State {
  /** Set if it can be used. */
  readonly mac?: Uint8Array;
  /** NUD_*. */
  readonly state: number;
}

/** A search that is under way. */
interface Search {
  readonly address: Uint8Array;
  readonly ifindex: number;
  readonly waiters: Set<(mac: Uint8Array | undefined) => void>;
}

/** Neighbours whose MAC addresses are kept, of which the oldest is forgotten first. */
const MAX_KNOWN = 4096;

const searches = new Map<string, Search>();
const failures = new Map<string, number>();
/** MAC addresses as `neighbourMac` has returned them, by neighbour. */
const known = new Map<string, string>();
const nextHopListeners = new Set<() => void>();
let endNextHops: (() => void)[] = [];
let endWatch: (() => void) | undefined;

/** Number of searches that are under way. */
export function neighbourSearches(): number {
  return searches.size;
}

/**
 * Returns the MAC address of a neighbour.
 * @param discover makes the kernel search it: see `startDiscovery`
 * @param closing aborts the wait
 * @returns undefined if the neighbour has not replied in time, or has not replied a moment ago
 * @throws the reason of `closing`
 */
export async function neighbourMac(
  address: Uint8Array,
  ifindex: number,
  discover: () => Promise<void>,
  timeoutMs: number,
  closing: AbortSignal,
): Promise<Uint8Array | undefined> {
  closing.throwIfAborted();
  const key = keyOf(address, ifindex);
  const { mac, state } = neighbour(address, ifindex);
  // The kernel itself uses a stale entry while it verifies it.
  if (mac !== undefined) {
    if ((state & NUD.STALE) !== 0) await discover();
    noteMac(key, mac);
    return mac;
  }
  if ((failures.get(key) ?? Number.NEGATIVE_INFINITY) > performance.now()) return undefined;
  const found = await wait(key, { address, ifindex }, discover, timeoutMs, closing);
  if (found !== undefined) noteMac(key, found);
  return found;
}

/**
 * Calls back in the event loop when another next hop may lead to a peer: after a change of routes, or when a neighbour
 * that was returned has another MAC address. Does not keep the process running.
 * @returns a function that ends the watch
 */
export function watchNextHops(onChange: () => void): () => void {
  const listener = () => onChange();
  nextHopListeners.add(listener);
  if (nextHopListeners.size === 1) {
    const tell = () => {
      for (const each of [...nextHopListeners]) each();
    };
    const neighbours = watchNeighbours((messages) => {
      // each is looked at, as each is noted
      if (messages === undefined || messages.filter(isNewMac).length > 0) tell();
    });
    endNextHops = [watchRoutes(tell), () => neighbours.end()];
  }
  return () => {
    if (!nextHopListeners.delete(listener) || nextHopListeners.size > 0) return;
    for (const end of endNextHops) end();
  };
}

/** Notes the MAC address of a notification. @returns whether `neighbourMac` has returned another one before */
function isNewMac(message: NetlinkMessage): boolean {
  const key = message.type === RTM.NEWNEIGH ? keyOfMessage(message) : undefined;
  const { mac } = stateOf(message);
  if (key === undefined || mac === undefined || !known.has(key)) return false;
  const isNew = known.get(key) !== macText(mac);
  known.set(key, macText(mac));
  return isNew;
}

function noteMac(key: string, mac: Uint8Array): void {
  known.delete(key);
  known.set(key, macText(mac));
  if (known.size <= MAX_KNOWN) return;
  const [oldest] = known.keys();
  known.delete(oldest as string);
}

function wait(
  key: string,
  { address, ifindex }: Pick<Search, 'address' | 'ifindex'>,
  discover: () => Promise<void>,
  timeoutMs: number,
  closing: AbortSignal,
): Promise<Uint8Array | undefined> {
  return new Promise((resolve, reject) => {
    const search = searches.get(key) ?? { address, ifindex, waiters: new Set() };
    const end = () => {
      clearTimeout(timer);
      closing.removeEventListener('abort', onAbort);
      search.waiters.delete(waiter);
      if (search.waiters.size === 0) endSearch(key);
    };
    const waiter = (mac: Uint8Array | undefined) => {
      if (mac === undefined) noteFailure(key);
      end();
      resolve(mac);
    };
    const onAbort = () => {
      end();
      reject(closing.reason);
    };
    const timer = setTimeout(() => waiter(undefined), timeoutMs);
    closing.addEventListener('abort', onAbort);
    search.waiters.add(waiter);
    if (searches.has(key)) return;
    searches.set(key, search);
    endWatch ??= watch();
    discover().then(
      () => check(key, search, neighbour(address, ifindex), true),
      (error) => {
        end();
        reject(error);
      },
    );
  });
}

/** Watches all searches. @returns a function that ends the watch */
function watch(): () => void {
  const watching = watchNeighbours((messages) => {
    if (messages === undefined) checkAll();
    else for (const message of messages) onNotification(message);
  });
  if (watching.isOpen) return () => watching.end();
  const timer = setInterval(checkAll, POLL_MS);
  return () => {
    clearInterval(timer);
    watching.end();
  };
}

function onNotification(message: NetlinkMessage): void {
  if (message.type !== RTM.NEWNEIGH) return;
  const key = keyOfMessage(message);
  if (key === undefined) return;
  const search = searches.get(key);
  const state = stateOf(message);
  if (search !== undefined) check(key, search, state);
  if (state.mac !== undefined) failures.delete(key);
}

function checkAll(): void {
  for (const [key, search] of searches) check(key, search, neighbour(search.address, search.ifindex));
}

/** @param isFirst the state may be that of an earlier search: its failure does not count */
function check(key: string, search: Search, { mac, state }: State, isFirst = false): void {
  if (searches.get(key) !== search) return;
  if (mac !== undefined || ((state & NUD.FAILED) !== 0 && !isFirst))
    for (const waiter of [...search.waiters]) waiter(mac);
}

function endSearch(key: string): void {
  searches.delete(key);
  if (searches.size > 0) return;
  endWatch?.();
  endWatch = undefined;
}

function noteFailure(key: string): void {
  failures.delete(key);
  failures.set(key, performance.now() + FAILURE_TIME);
  if (failures.size <= MAX_FAILURES) return;
  const [oldest] = failures.keys();
  failures.delete(oldest as string);
}

/** Makes the kernel search a neighbour. @throws NetlinkError if the process may not */
export function startDiscovery(address: Uint8Array, ifindex: number): void {
  const header = neighbourHeader(address, ifindex, NTF_USE);
  netlinkRequest(RTM.NEWNEIGH, NLM.ACK | NLM.CREATE, header, [[NDA.DST, address]]);
}

function neighbour(address: Uint8Array, ifindex: number): State {
  let reply: NetlinkMessage | undefined;
  try {
    [reply] = netlinkRequest(RTM.GETNEIGH, NLM.ACK, neighbourHeader(address, ifindex), [[NDA.DST, address]]);
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
  }
  return reply === undefined ? { state: 0 } : stateOf(reply);
}

function stateOf({ body }: NetlinkMessage): State {
  const state = viewOf(body).getUint16(8, true);
  const mac = attributesOf(body, 12).get(NDA.LLADDR);
  return (state & NUD.USABLE) !== 0 && mac?.length === 6 ? { mac: Uint8Array.from(mac), state } : { state };
}

function neighbourHeader(address: Uint8Array, ifindex: number, flags = 0): Uint8Array {
  const header = new Uint8Array(12);
  header[0] = address.length === 4 ? AF_INET : AF_INET6;
  header.set(u32(ifindex), 4);
  header[10] = flags;
  return header;
}

/** Returns undefined for a notification without an address. */
function keyOfMessage({ body }: NetlinkMessage): string | undefined {
  const address = attributesOf(body, 12).get(NDA.DST);
  return address && keyOf(address, viewOf(body).getInt32(4, true));
}

function keyOf(address: Uint8Array, ifindex: number): string {
  return `${ifindex}/${Buffer.from(address).toString('hex')}`;
}
