/** Connections by the fields of messages: local communication id, remote communication id, remote queue pair number. */
import type { Connection } from './connection.js';

/** All connections of a core. */
export class ConnectionTable {
  readonly #byLocalCommId = new Map<number, Connection>();
  /** By the remote communication id. A REQ or REP of an indexed id is a duplicate. */
  readonly #byRemoteCommId = new PeerIndex();
  /** By remote communication id alone; of several the newest. */
  readonly #byPeerId = new Map<number, Connection>();
  /** By the remote queue pair number. A second connection of the same queue pair makes the first one stale. */
  readonly #byRemoteQpn = new PeerIndex();

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
    const { peer } = connection;
    this.#byRemoteCommId.set(peer.commId, connection);
    this.#byRemoteQpn.set(peer.qpn, connection);
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
    return this.#byRemoteCommId.get(source, guid, commId);
  }

  /** Finds the connection of a peer's queue pair. @param source as in `findByRemoteCommId` */
  findByRemoteQpn(source: string, guid: bigint, qpn: number): Connection | undefined {
    return this.#byRemoteQpn.get(source, guid, qpn);
  }

  /** From now on the peer can use its queue pair for another connection. */
  releaseRemoteQpn(connection: Connection): void {
    this.#byRemoteQpn.delete(connection.peer.qpn, connection);
  }

  remove(connection: Connection): void {
    this.#byLocalCommId.delete(connection.localCommId);
    this.#byRemoteCommId.delete(connection.peer.commId, connection);
    if (this.#byPeerId.get(connection.peer.commId) === connection) this.#byPeerId.delete(connection.peer.commId);
    this.releaseRemoteQpn(connection);
  }
}

/**
 * Connections by a number of the peer, its CA GUID and the source of its messages. A GUID alone would let any host name
 * the connections of another one. A look-up makes no text of the GUID: under a flood it is most of the work.
 */
class PeerIndex {
  readonly #bySource = new Map<string, Map<bigint, Map<number, Connection>>>();

  get(source: string, guid: bigint, number: number): Connection | undefined {
    return this.#bySource.get(source)?.get(guid)?.get(number);
  }

  set(number: number, connection: Connection): void {
    const { remoteGid, peer } = connection;
    const byGuid = this.#bySource.get(remoteGid) ?? new Map<bigint, Map<number, Connection>>();
    const byNumber = byGuid.get(peer.guid) ?? new Map<number, Connection>();
    this.#bySource.set(remoteGid, byGuid);
    byGuid.set(peer.guid, byNumber);
    byNumber.set(number, connection);
  }

  /** Removes a connection, unless another one has its number by now. */
  delete(number: number, connection: Connection): void {
    const { remoteGid, peer } = connection;
    const byGuid = this.#bySource.get(remoteGid);
    const byNumber = byGuid?.get(peer.guid);
    if (byGuid === undefined || byNumber?.get(number) !== connection) return;
    byNumber.delete(number);
    if (byNumber.size === 0) byGuid.delete(peer.guid);
    if (byGuid.size === 0) this.#bySource.delete(remoteGid);
  }
}
