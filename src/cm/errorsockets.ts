/**
 * Sends repetitions of requests by sockets that learn of ICMP errors, and says which requests do not reach their peer.
 * The card's own frames are answered by none: only the kernel sees ICMP, and it tells the sender's socket.
 */

import { gidAddress, gidText } from '../base/gid.js';
import { clearInterval, setInterval } from '../base/timers.js';
import type { IcmpErrorCode } from '../errors.js';
import type { ErrorSocket, IcmpError, Link } from '../link/link.js';
import type { Route } from './core/context.js';

/**
 * A socket stays open for at least this time after a frame, milliseconds. The kernel gives up a neighbour after 3 s.
 */
const LIFE = 5000;

/** The requests that a socket has sent: their ids by the GID of their peer. */
type Requests = Map<string, Set<number>>;

/** The socket of a local address. */
interface Entry {
  readonly socket: ErrorSocket;
  /** Those since the last `LIFE`, and those before: ids that have ended are dropped with them. */
  recent: Requests;
  earlier: Requests;
  readonly timer: NodeJS.Timeout;
}

export class ErrorSockets {
  readonly #link: Link;
  readonly #fail: (id: number, code: IcmpErrorCode) => void;
  /** By local GID. */
  readonly #entries = new Map<string, Entry>();

  /** @param fail called for each request that does not reach its peer; the request may have ended */
  constructor(link: Link, fail: (id: number, code: IcmpErrorCode) => void) {
    this.#link = link;
    this.#fail = fail;
  }

  /**
   * Sends a message.
   * @param id of its request
   * @param frameFrom returns the frame of the message with a UDP source port
   * @returns false if the message has to be sent in the usual way
   */
  send({ local, remote }: Route, id: number, frameFrom: (sourcePort: number) => Uint8Array | undefined): boolean {
    const entry = this.#entries.get(local) ?? this.#open(local);
    const frame = entry && frameFrom(entry.socket.port);
    if (entry === undefined || frame === undefined || !entry.socket.send(frame)) return false;
    const peer = gidText(remote);
    const ids = entry.recent.get(peer) ?? new Set();
    entry.recent.set(peer, ids.add(id));
    return true;
  }

  close(): void {
    for (const { socket, timer } of this.#entries.values()) {
      clearInterval(timer);
      socket.close();
    }
    this.#entries.clear();
  }

  #open(local: string): Entry | undefined {
    const socket = this.#link.openErrorSocket?.(gidAddress(local), (error) => this.#onError(local, error));
    if (socket === undefined) return undefined;
    const timer = setInterval(() => this.#forget(local, entry), LIFE).unref();
    const entry: Entry = { socket, recent: new Map(), earlier: new Map(), timer };
    this.#entries.set(local, entry);
    return entry;
  }

  /** Forgets the earlier requests, and closes a socket that has sent none since. */
  #forget(local: string, entry: Entry): void {
    entry.earlier = entry.recent;
    entry.recent = new Map();
    if (entry.earlier.size > 0) return;
    this.#entries.delete(local);
    clearInterval(entry.timer);
    entry.socket.close();
  }

  #onError(local: string, { destination, code }: IcmpError): void {
    const entry = this.#entries.get(local);
    if (entry === undefined) return;
    const peer = gidText(destination);
    const ids = [...(entry.earlier.get(peer) ?? []), ...(entry.recent.get(peer) ?? [])];
    entry.earlier.delete(peer);
    entry.recent.delete(peer);
    for (const id of ids) this.#fail(id, code);
  }
}
