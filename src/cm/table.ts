/** Connections by what messages name: our id, the peer's id, the peer's queue pair. */
import type { Connection } from './connection.js';

export class ConnectionTable {
  readonly #byId = new Map<number, Connection>();
  /** By CA GUID and the peer's communication id: a REQ or REP that names a known one is a duplicate. */
  readonly #byRemoteId = new Map<string, Connection>();
  /** By CA GUID and the peer's queue pair: who asks for another connection of the same has forgotten the first. */
  readonly #byRemoteQpn = new Map<string, Connection>();

  get size(): number {
    return this.#byId.size;
  }

  [Symbol.iterator](): IterableIterator<Connection> {
    return this.#byId.values();
  }

  isKnown(id: number): boolean {
    return this.#byId.has(id);
  }

  add(connection: Connection): void {
    this.#byId.set(connection.id, connection);
  }

  /** The peer has told its id and queue pair. */
  addPeer(connection: Connection): void {
    const { guid, commId, qpn } = connection.peer;
    this.#byRemoteId.set(key(guid, commId), connection);
    this.#byRemoteQpn.set(key(guid, qpn), connection);
  }

  find(id: number): Connection | undefined {
    return this.#byId.get(id);
  }

  /** @param remote the peer's id */
  findPair(id: number, remote: number): Connection | undefined {
    const connection = this.#byId.get(id);
    return connection?.peer.commId === remote ? connection : undefined;
  }

  findRemoteId(guid: bigint, commId: number): Connection | undefined {
    return this.#byRemoteId.get(key(guid, commId));
  }

  findRemoteQpn(guid: bigint, qpn: number): Connection | undefined {
    return this.#byRemoteQpn.get(key(guid, qpn));
  }

  /** The peer may use its queue pair for another connection. */
  releaseQpn(connection: Connection): void {
    const { guid, qpn } = connection.peer;
    if (this.findRemoteQpn(guid, qpn) === connection) this.#byRemoteQpn.delete(key(guid, qpn));
  }

  remove(connection: Connection): void {
    const { guid, commId } = connection.peer;
    this.#byId.delete(connection.id);
    if (this.findRemoteId(guid, commId) === connection) this.#byRemoteId.delete(key(guid, commId));
    this.releaseQpn(connection);
  }
}

function key(guid: bigint, number: number): string {
  return `${guid}/${number}`;
}
