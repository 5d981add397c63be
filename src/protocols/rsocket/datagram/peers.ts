/**
 * The queue pairs of peers, by address and port. A peer is known from its introduction on, and once its address is
 * resolved. The one that was not heard of for the longest time makes room for another.
 */
import type { AddressHandle, Pd } from '../../../index.js';

/** Peers that are kept. */
const MAX_PEERS = 1024;
/** Addresses that are resolved at a time. Beyond, introductions have no effect. */
const MAX_LOOKUPS = 64;
/**
 * Time after which a peer that is silent is introduced to again (ms): one that has restarted has another queue pair,
 * and nothing else would tell.
 */
const SILENCE_MS = 2000;

/** The destination of a message. */
export interface Destination {
  readonly ah: AddressHandle;
  readonly qpNum: number;
}

interface Peer {
  /** Of its latest introduction. */
  qpNum: number;
  destination: Destination | undefined;
  isResolving: boolean;
  /** When the introduction came for which its address was resolved (ms). */
  resolvedAt: number;
  /** When it was last heard, or introduced to (ms). */
  checkedAt: number;
}

export class Peers {
  readonly #pd: Pd;
  /** Least recently heard first. */
  readonly #peers = new Map<string, Peer>();
  /** Address handles that a message in flight still needs. */
  readonly #retired = new Set<AddressHandle>();
  #lookups = 0;

  constructor(pd: Pd) {
    this.#pd = pd;
  }

  /** Returns where messages to a peer go; undefined: it has to be introduced to. */
  destinationOf(address: string, port: number): Destination | undefined {
    const peer = this.#peers.get(keyOf(address, port));
    const now = performance.now();
    if (peer?.destination === undefined || now - peer.checkedAt < SILENCE_MS) return peer?.destination;
    peer.checkedAt = now;
    return undefined;
  }

  /** A message of a peer has come. */
  heard(address: string, port: number): void {
    const peer = this.#peers.get(keyOf(address, port));
    if (peer !== undefined) this.#touch(keyOf(address, port), peer);
  }

  /** A peer has introduced its queue pair. */
  introduced(address: string, port: number, qpNum: number): void {
    const key = keyOf(address, port);
    const peer = this.#peers.get(key) ?? {
      qpNum,
      destination: undefined,
      isResolving: false,
      resolvedAt: Number.NEGATIVE_INFINITY,
      checkedAt: 0,
    };
    this.#touch(key, peer);
    peer.qpNum = qpNum;
    if (peer.destination !== undefined) peer.destination = { ah: peer.destination.ah, qpNum };
    // it may have another adapter by now
    if (peer.checkedAt - peer.resolvedAt >= SILENCE_MS) this.#resolve(key, address, peer);
    if (this.#peers.size <= MAX_PEERS) return;
    const [[oldest, { destination }]] = this.#peers as unknown as [[string, Peer]];
    this.#peers.delete(oldest);
    this.#retire(destination);
  }

  /** Closes all address handles. The queue pair is closed before. */
  close(): void {
    for (const { destination } of this.#peers.values()) this.#retire(destination);
    this.#peers.clear();
  }

  #touch(key: string, peer: Peer): void {
    peer.checkedAt = performance.now();
    this.#peers.delete(key);
    this.#peers.set(key, peer);
  }

  #resolve(key: string, address: string, peer: Peer): void {
    if (peer.isResolving || this.#lookups === MAX_LOOKUPS) return;
    peer.isResolving = true;
    const introducedAt = peer.checkedAt;
    this.#lookups++;
    this.#pd
      .createAh({ grh: { dgid: address } })
      .then(
        (ah) => {
          this.#retire(peer.destination);
          peer.destination = { ah, qpNum: peer.qpNum };
          peer.resolvedAt = introducedAt;
          if (this.#peers.get(key) !== peer) this.#retire(peer.destination);
        },
        // Its messages go by UDP, which says why they do not arrive.
        () => {},
      )
      .finally(() => {
        peer.isResolving = false;
        this.#lookups--;
      });
  }

  #retire(destination: Destination | undefined): void {
    if (destination !== undefined) this.#retired.add(destination.ah);
    for (const ah of this.#retired)
      ah.close().then(
        () => this.#retired.delete(ah),
        // a message to it is in flight
        () => {},
      );
  }
}

const keyOf = (address: string, port: number) => `${address} ${port}`;
