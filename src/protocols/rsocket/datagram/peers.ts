/**
 * The queue pairs of peers, by address and port. A peer is known from its introduction on, and once its address is
 * resolved. The one that was not heard of for the longest time makes room for another.
 */
import { gidAddress } from '../../../base/gid.js';
import { performance } from '../../../base/timers.js';
import type { Route } from '../../../cm/ahcache.js';
import type { LocalEnd } from './localends.js';

/** Peers that are kept. */
const MAX_PEERS = 1024;
/**
 * Time after which a peer that is silent is introduced to again (ms): one that has restarted has another queue pair,
 * and nothing else would tell.
 */
const SILENCE_MS = 2000;

/** The destination of a message. */
export interface Destination {
  /** Our end that reaches it. */
  readonly end: LocalEnd;
  /** Its address handle is in the cache now. */
  readonly route: Route;
  readonly qpNum: number;
}

interface Peer {
  /** Our end that it has introduced itself to. */
  end: LocalEnd;
  /** Of its latest introduction. */
  qpNum: number;
  /** The route to it, once its address is resolved. */
  route: Route | undefined;
  /** When the introduction came for which its address was resolved (ms). */
  resolvedAt: number;
  /** When it was last heard, or introduced to (ms). */
  checkedAt: number;
}

export class Peers {
  /** Least recently heard first. */
  readonly #peers = new Map<string, Peer>();

  /** Returns where messages to a peer go; undefined: it has to be introduced to. */
  destinationOf(address: string, port: number): Destination | undefined {
    const peer = this.#peers.get(keyOf(address, port));
    if (peer?.route === undefined) return undefined;
    const now = performance.now();
    if (now - peer.checkedAt >= SILENCE_MS) {
      peer.checkedAt = now;
      return undefined;
    }
    const { end, route, qpNum } = peer;
    return end.port.ahs.get(route) && { end, route, qpNum };
  }

  /** A message of a peer has come. */
  heard(address: string, port: number): void {
    const peer = this.#peers.get(keyOf(address, port));
    if (peer !== undefined) this.#touch(keyOf(address, port), peer);
  }

  /** A peer has introduced its queue pair to an end of ours. */
  introduced(end: LocalEnd, address: string, port: number, qpNum: number): void {
    const key = keyOf(address, port);
    const peer = this.#peers.get(key) ?? {
      end,
      qpNum,
      route: undefined,
      resolvedAt: Number.NEGATIVE_INFINITY,
      checkedAt: 0,
    };
    this.#touch(key, peer);
    const isOfOtherEnd = peer.end !== end;
    if (isOfOtherEnd) Object.assign(peer, { end, route: undefined });
    peer.qpNum = qpNum;
    // it may have another adapter by now
    if (isOfOtherEnd || peer.checkedAt - peer.resolvedAt >= SILENCE_MS) this.#resolve(address, peer);
    if (this.#peers.size <= MAX_PEERS) return;
    const [oldest = ''] = this.#peers.keys();
    this.#peers.delete(oldest);
  }

  #touch(key: string, peer: Peer): void {
    peer.checkedAt = performance.now();
    this.#peers.delete(key);
    this.#peers.set(key, peer);
  }

  #resolve(remote: string, peer: Peer): void {
    const introducedAt = peer.checkedAt;
    // A peer whose address cannot be resolved gets its messages by UDP, which says why they do not arrive.
    const { end } = peer;
    const route = routeTo(end, remote);
    if (route === undefined) return;
    const onResolved = () => {
      if (peer.end !== end) return;
      peer.route = route;
      peer.resolvedAt = introducedAt;
    };
    end.port.ahs.resolve(route, introducedAt, onResolved, () => {});
  }
}

function routeTo({ device }: LocalEnd, remote: string): Route | undefined {
  try {
    return { local: gidAddress(device.chooseGid(remote).gid), remote };
  } catch {
    return undefined;
  }
}

const keyOf = (address: string, port: number) => `${address} ${port}`;
