/** State that all connections of a core share: time, pending messages and events, deadlines, counters, ids. */

import type { Connection } from './connection.js';
import { Deadlines, type Timed } from './deadlines.js';
import type { CoreEvent } from './events.js';
import { type Content, encodeMad } from './mad.js';
import { type Message, type MessageName, NO_DATA } from './messages.js';
import { NO_OTHER_CARDS, type OtherCards } from './othercards.js';
import { Partitions } from './partitions.js';
import { Pending } from './pending.js';
import { ConnectionTable } from './table.js';

/** Source and destination of a message: GIDs as text. */
export interface Route {
  readonly local: string;
  readonly remote: string;
  /** The sender of a received message on the link: its reply goes back there without a look-up. */
  readonly neighbour?: Neighbour | undefined;
  /**
   * Index of the P_Key by which a message arrived, or with which it leaves: replies leave in the partition of their
   * request (IBTA 13.5.4). Default: that of `Partitions.defaultIndex`.
   */
  readonly pkeyIndex?: number | undefined;
}

/** A host or router on the link. */
export interface Neighbour {
  /** 6 bytes; zeroes where the link does not see it. */
  readonly mac: Uint8Array;
  /** Tag control information of its frames. Undefined: untagged. */
  readonly vlanTci: number | undefined;
}

/** A message for queue pair 1 of a peer. */
export interface Outgoing extends Route {
  readonly bytes: Uint8Array;
  /** Id of the connection or exchange that `CmCore.fail` ends if ICMP says that the peer cannot be reached. */
  readonly fails?: number | undefined;
}

/** An object with a deadline. */
export interface Expiring extends Timed {
  onDeadline(): void;
}

export interface ContextOptions {
  /** CA GUID, 64 bits. Must be unique: a peer would take the connections of two cores with one GUID for stale. */
  readonly guid: bigint;
  /** Returns 32 unpredictable random bits. */
  readonly random: () => number;
  /** Other cards that receive the same messages. Default: none. */
  readonly otherCards?: OtherCards;
  /** Default: the default partition alone. */
  readonly partitions?: Partitions;
  /**
   * Connections, of all peers, that only the protocol still needs: in timewait, or closed by the application while the
   * peer has not answered the DREQ. Each takes about 1 KB. Default 2048.
   */
  readonly maxEndedConnections?: number;
}

/** One for each core. Only the core, its connections and its SIDR exchanges write it. */
export class CoreContext {
  readonly guid: bigint;
  readonly otherCards: OtherCards;
  readonly partitions: Partitions;
  readonly deadlines = new Deadlines<Expiring>();
  readonly connections = new ConnectionTable();
  /** See `ContextOptions.maxEndedConnections`. */
  readonly ended = new Pending<Connection>();
  readonly maxEnded: number;
  /** Time of the current call, milliseconds. */
  now = 0;
  /** Changes of connections and exchanges so far. A message that makes none was ignored, refused or a repetition. */
  changes = 0;
  readonly #random: () => number;
  readonly #tidHigh: bigint;
  /** By counter and name. */
  readonly #counts = new Map<string, Map<string, number>>();
  #outgoing: Outgoing[] = [];
  #events: CoreEvent[] = [];
  /** Ids of SIDR exchanges. */
  readonly sidrIds = new Set<number>();

  constructor({
    guid,
    random,
    otherCards = NO_OTHER_CARDS,
    partitions = new Partitions(),
    maxEndedConnections = 2048,
  }: ContextOptions) {
    this.maxEnded = maxEndedConnections;
    this.guid = guid;
    this.otherCards = otherCards;
    this.partitions = partitions;
    this.#random = random;
    this.#tidHigh = BigInt(random());
  }

  /** Returns an unused communication id or SIDR request id; never 0. */
  allocateId(): number {
    const { commIdPrefix } = this.otherCards;
    for (;;) {
      const random = this.#random();
      const id = commIdPrefix === undefined ? random : ((commIdPrefix << 24) | (random & 0xff_ffff)) >>> 0;
      if (id !== 0 && !this.connections.has(id) && !this.sidrIds.has(id)) return id;
    }
  }

  /** Returns the transaction id of an exchange that this end begins. */
  tidOf(id: number): bigint {
    return (this.#tidHigh << 32n) | BigInt(id);
  }

  /**
   * Sends a message. Fields that are not named are zero.
   * @param parts fields of the message, in as many objects as the caller has them in
   * @returns the message, for `retransmit`
   */
  send<N extends MessageName>(route: Route, name: N, tid: bigint, ...parts: readonly Content<N>[]): Outgoing {
    this.count('tx_msgs', name);
    return this.#queue(route, name, tid, parts);
  }

  /** Sends a message again that was not kept. */
  repeat<N extends MessageName>(route: Route, name: N, tid: bigint, ...parts: readonly Content<N>[]): void {
    this.count('tx_retries', name);
    this.#queue(route, name, tid, parts);
  }

  /** Returns a message without sending it. */
  write<N extends MessageName>(route: Route, name: N, tid: bigint, ...parts: readonly Content<N>[]): Outgoing {
    return outgoingOf(route, encodeMad(name, tid, ...parts));
  }

  #queue<N extends MessageName>(route: Route, name: N, tid: bigint, parts: readonly Content<N>[]): Outgoing {
    const outgoing = this.write(route, name, tid, ...parts);
    this.#outgoing.push(outgoing);
    return outgoing;
  }

  /** Sends a datagram that is no message of a connection. @param name for the counter */
  sendBytes(route: Route, name: string, bytes: Uint8Array): void {
    this.count('tx_msgs', name);
    this.#outgoing.push(outgoingOf(route, bytes));
  }

  /** Sends a message again, with the same bytes. @param fails as `Outgoing.fails` */
  retransmit(name: MessageName, outgoing: Outgoing, fails?: number): void {
    this.count('tx_retries', name);
    this.#outgoing.push(fails === undefined ? outgoing : outgoingOf(outgoing, outgoing.bytes, fails));
  }

  /** Queues an event for the application. */
  emit(event: CoreEvent): void {
    this.changes++;
    this.#events.push(event);
  }

  /** Adds one to a counter: `cm_<counter>.<name>` as in Linux (`cm_rx_msgs.req`), or `cm_<counter>`. */
  count(counter: string, name = ''): void {
    let counts = this.#counts.get(counter);
    if (counts === undefined) {
      counts = new Map();
      this.#counts.set(counter, counts);
    }
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }

  get counters(): Readonly<Record<string, number>> {
    const keyOf = (counter: string, name: string) =>
      name === '' ? `cm_${counter}` : `cm_${counter}.${name.toLowerCase()}`;
    return Object.fromEntries(
      [...this.#counts].flatMap(([counter, counts]) =>
        Array.from(counts, ([name, count]) => [keyOf(counter, name), count] as const),
      ),
    );
  }

  takeMessages(): Outgoing[] {
    const messages = this.#outgoing;
    this.#outgoing = [];
    return messages;
  }

  takeEvents(): CoreEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }
}

/** Not by a spread: so V8 has one hidden class for all messages. */
function outgoingOf({ local, remote, neighbour, pkeyIndex }: Route, bytes: Uint8Array, fails?: number): Outgoing {
  return { bytes, local, remote, neighbour, pkeyIndex, fails };
}

/** Sends a REJ for a REQ or REP that belongs to no connection, with its communication ids swapped (IBTA 12.9.8). */
export function sendRejFor(
  context: CoreContext,
  route: Route,
  rejected: Message<'REQ'> | Message<'REP'>,
  subject: number,
  reason: number,
  info: Uint8Array = NO_DATA,
): void {
  context.send(route, 'REJ', rejected.tid, {
    localCommId: rejected.name === 'REP' ? rejected.remoteCommId : 0,
    remoteCommId: rejected.localCommId,
    messageRejected: subject,
    reason,
    infoLength: info.length,
    info,
  });
}
