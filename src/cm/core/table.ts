/** Connections by the fields of messages: local communication id, remote communication id, remote queue pair number. */
import type { Connection } from './connection.js';

/** All connections of a core. */
export class ConnectionTable {
  readonly #byLocalCommId = new Map<number, Connection>();
  /** By source, CA GUID and remote communication id. A REQ or REP of an indexed id is a duplicate. */
  readonly #byRemoteCommId = new Map<string, Connection>();
  /** By remote communication id alone; of several the newest. */
  readonly #byPeerId = new Map<number, Connection>();
  /**
   * By source, CA GUID and remote queue pair number. A second connection of the same queue pair makes the first one
   * stale.
   */
  readonly #byRemoteQpn = new Map<string, Connection>();

  get size(): number {
    return this.#byLocalCommId.size;
  }

  [Symbol.iterator](): IterableIterator<Connection> {
    return this.#byLocalCommId.values();
  }

  has(id: number): boolean {
    return this.#byLocalCommId.has(id);
  }

  /** Whether an id is the remote communication id of a connection. */
  hasPeer(id: number): boolean {
    return this.#byPeerId.has(id);
  }

  add(connection: Connection): void {
    this.#byLocalCommId.set(connection.localCommId, connection);
  }

  /** Indexes a connection by the peer's ids, once its REQ or REP has arrived. */
  indexPeer(connection: Connection): void {
    const { peer, remoteGid } = connection;
    this.#byRemoteCommId.set(key(remoteGid, peer.guid, peer.commId), connection);
    this.#byRemoteQpn.set(key(remoteGid, peer.guid, peer.qpn), connection);
    this.#byPeerId.set(peer.commId, connection);
  }

  /** Finds a connection by its local communication id. */
  find(id: number): Connection | undefined {
    return this.#byLocalCommId.get(id);
  }

  /** Finds a connection by the communication ids of both ends. @param remote the peer's communication id */
  findByCommIds(id: number, remote: number): Connection | undefined {
    const connection = this.#byLocalCommId.get(id);
    return connection?.peer.commId === remote ? connection : undefined;
  }

  /** Finds a connection of a peer. @param source GID that the message came from, as `gidText` writes it */
  findByRemoteCommId(source: string, guid: bigint, commId: number): Connection | undefined {
    return this.#byRemoteCommId.get(key(source, guid, commId));
  }

  /** Finds the connection of a peer's queue pair. @param source as in `findByRemoteCommId` */
  findByRemoteQpn(source: string, guid: bigint, qpn: number): Connection | undefined {
    return this.#byRemoteQpn.get(key(source, guid, qpn));
  }

  /** From now on the peer can use its queue pair for another connection. */
  releaseRemoteQpn(connection: Connection): void {
    const of = key(connection.remoteGid, connection.peer.guid, connection.peer.qpn);
    if (this.#byRemoteQpn.get(of) === connection) this.#byRemoteQpn.delete(of);
  }

  remove(connection: Connection): void {
    this.#byLocalCommId.delete(connection.localCommId);
    const of = key(connection.remoteGid, connection.peer.guid, connection.peer.commId);
    if (this.#byRemoteCommId.get(of) === connection) this.#byRemoteCommId.delete(of);
    if (this.#byPeerId.get(connection.peer.commId) === connection) this.#byPeerId.delete(connection.peer.commId);
    this.releaseRemoteQpn(connection);
  }
}

/** A GUID alone would let any host name the connections of another one. */
function key(source: string, guid: bigint, number: number): string {
  return `${source}/${guid}/${number}`;
}
