/** Connections that wait for the application or for the peer, in order of arrival and by peer. */

/** A connection, or another request of a peer. */
export interface OfPeer {
  /** GID of the peer. */
  readonly remoteGid: string;
}

/** The connections of one peer, oldest first. */
interface OfOnePeer<C> {
  readonly all: Set<C>;
  /** The last that was added, even if it has left since. */
  newest: C;
}

/** A set of connections that knows the peer with the most. All calls take constant time. */
export class Pending<C extends OfPeer> {
  readonly #byPeer = new Map<string, OfOnePeer<C>>();
  /** Peers by their number of connections; index 0 is not used. */
  readonly #peersWith: (Set<string> | undefined)[] = [];
  /** The largest number of one peer. */
  #most = 0;
  #size = 0;

  /** Number of connections. */
  get size(): number {
    return this.#size;
  }

  /** Number of connections of the peer that has the most. */
  get most(): number {
    return this.#most;
  }

  /** Number of connections of a peer. */
  countOf(peer: string): number {
    return this.#byPeer.get(peer)?.all.size ?? 0;
  }

  /** Adds a connection that is not in the set. */
  add(connection: C): void {
    const peer = connection.remoteGid;
    const own = this.#byPeer.get(peer) ?? { all: new Set<C>(), newest: connection };
    this.#byPeer.set(peer, own);
    own.all.add(connection);
    own.newest = connection;
    this.#size++;
    this.#move(peer, own.all.size - 1, own.all.size);
    this.#most = Math.max(this.#most, own.all.size);
  }

  /** Removes a connection, if it is in the set. */
  delete(connection: C): void {
    const peer = connection.remoteGid;
    const own = this.#byPeer.get(peer)?.all;
    if (own?.delete(connection) !== true) return;
    if (own.size === 0) this.#byPeer.delete(peer);
    this.#size--;
    this.#move(peer, own.size + 1, own.size);
    if (this.#peersWith[this.#most] === undefined) this.#most--;
  }

  /** Returns the oldest connection of a peer. */
  oldestOf(peer: string): C | undefined {
    const [oldest] = this.#byPeer.get(peer)?.all ?? [];
    return oldest;
  }

  /** Returns the connection of a peer that was added last, even if it has left; undefined when none is left. */
  newestOf(peer: string): C | undefined {
    return this.#byPeer.get(peer)?.newest;
  }

  /** Returns the oldest connection of a peer that has the most; undefined when the set is empty. */
  oldestOfLargest(): C | undefined {
    const [peer] = this.#peersWith[this.#most] ?? [];
    return this.oldestOf(peer ?? '');
  }

  #move(peer: string, from: number, to: number): void {
    const left = this.#peersWith[from];
    left?.delete(peer);
    const isEmpty = left?.size === 0;
    if (isEmpty) this.#peersWith[from] = undefined;
    if (to === 0) return;
    // The set that is empty now serves again: otherwise each connection of a peer would make one.
    const joined = this.#peersWith[to] ?? (isEmpty ? left : new Set<string>());
    this.#peersWith[to] = joined.add(peer);
  }
}
