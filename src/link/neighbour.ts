/**
 * The kernel's neighbours: their MAC addresses (rtnetlink(7): RTM_GETNEIGH). All that wait for the same neighbour share
 * one search, which the kernel's notification ends. A neighbour that has not replied is not searched again for a while.
 */

import { clearInterval, clearTimeout, performance, setInterval, setTimeout } from '../base/timers.js';
import { watchNeighbours } from './monitor.js';
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

const searches = new Map<string, Search>();
const failures = new Map<string, number>();
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
  const known = neighbour(address, ifindex);
  // The kernel itself uses a stale entry while it verifies it.
  if (known.mac !== undefined) {
    if ((known.state & NUD.STALE) !== 0) await discover();
    return known.mac;
  }
  if ((failures.get(key) ?? Number.NEGATIVE_INFINITY) > performance.now()) return undefined;
  return await wait(key, { address, ifindex }, discover, timeoutMs, closing);
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
  const address = attributesOf(message.body, 12).get(NDA.DST);
  if (address === undefined) return;
  const key = keyOf(address, viewOf(message.body).getInt32(4, true));
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

function keyOf(address: Uint8Array, ifindex: number): string {
  return `${ifindex}/${Buffer.from(address).toString('hex')}`;
}
