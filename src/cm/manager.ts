/** What all connections of a core share: the time, what is to be sent and told, deadlines, counters, numbers. */
import { Deadlines, type Timed } from './deadlines.js';
import type { CoreEvent } from './events.js';
import { encodeMad } from './mad.js';
import type { Fields, Message, MessageName } from './messages.js';
import type { Others } from './neighbours.js';
import { Partitions } from './partitions.js';
import { ConnectionTable } from './table.js';

/** Between which addresses a message travels: GIDs as text. */
export interface Route {
  readonly local: string;
  readonly remote: string;
}

/** A message for queue pair 1 of another card. */
export interface Outgoing extends Route {
  readonly bytes: Uint8Array;
}

export interface Expiring extends Timed {
  onDeadline(): void;
}

export interface ManagerOptions {
  /** The CA GUID, 64 bits. Two cores must never have the same: peers would take each other's connections for stale. */
  readonly guid: bigint;
  /** 32 random bits that cannot be guessed. */
  readonly random: () => number;
  /** Other cards that hear the same. Default: there are none. */
  readonly others?: Others;
  /** Default: the default partition. */
  readonly partitions?: Partitions;
}

const NOBODY: Others = { idPrefix: undefined, hasId: () => false, serves: () => false };

export class Manager {
  readonly guid: bigint;
  readonly others: Others;
  readonly partitions: Partitions;
  readonly deadlines = new Deadlines<Expiring>();
  readonly connections = new ConnectionTable();
  /** Milliseconds, as last told. */
  now = 0;
  readonly #random: () => number;
  readonly #tidHigh: bigint;
  readonly #counters = new Map<string, number>();
  #messages: Outgoing[] = [];
  #events: CoreEvent[] = [];
  /** Numbers that are in use beside those of connections. */
  readonly requests = new Set<number>();

  constructor({ guid, random, others = NOBODY, partitions = new Partitions() }: ManagerOptions) {
    this.guid = guid;
    this.others = others;
    this.partitions = partitions;
    this.#random = random;
    this.#tidHigh = BigInt(random());
  }

  /** A communication id or request id that nothing has: not 0. */
  newId(): number {
    const { idPrefix } = this.others;
    for (;;) {
      const random = this.#random();
      const id = idPrefix === undefined ? random : ((idPrefix << 24) | (random & 0xff_ffff)) >>> 0;
      if (id !== 0 && !this.connections.isKnown(id) && !this.requests.has(id)) return id;
    }
  }

  /** The transaction id of what an id begins. */
  tidOf(id: number): bigint {
    return (this.#tidHigh << 32n) | BigInt(id);
  }

  /** Sends a message with these fields, all others zero. @returns the bytes, to be repeated */
  send<N extends MessageName>(route: Route, name: N, tid: bigint, fields: Partial<Fields<N>>): Outgoing {
    return this.transmit(name, { ...route, bytes: encodeMad({ name, tid, modifier: 0, ...fields }) });
  }

  transmit(name: MessageName, outgoing: Outgoing): Outgoing {
    this.count('tx_msgs', name);
    this.#messages.push(outgoing);
    return outgoing;
  }

  repeat(name: MessageName, outgoing: Outgoing): Outgoing {
    this.count('tx_retries', name);
    this.#messages.push(outgoing);
    return outgoing;
  }

  tell(event: CoreEvent): void {
    this.#events.push(event);
  }

  /** Counts as Linux does, `cm_rx_msgs` by message; other reasons by their name alone. */
  count(what: string, name = ''): void {
    const key = name === '' ? `cm_${what}` : `cm_${what}.${name.toLowerCase()}`;
    this.#counters.set(key, (this.#counters.get(key) ?? 0) + 1);
  }

  get counters(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counters);
  }

  takeMessages(): Outgoing[] {
    const messages = this.#messages;
    this.#messages = [];
    return messages;
  }

  takeEvents(): CoreEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }
}

/** Rejects what a message asked for that leads to no connection: ids as they came, swapped (IBTA 12.9.8). */
export function refuse(
  manager: Manager,
  route: Route,
  of: Message<'REQ'> | Message<'REP'>,
  subject: number,
  reason: number,
  info: Uint8Array = new Uint8Array(0),
): void {
  manager.send(route, 'REJ', of.tid, {
    localCommId: of.name === 'REP' ? of.remoteCommId : 0,
    remoteCommId: of.localCommId,
    messageRejected: subject,
    reason,
    infoLength: info.length,
    info,
  });
}
