/**
 * The messages that wait at queue pair 1 to be handled. Each kind has a bounded queue and a share of every round, so
 * that a flood of one kind neither delays the others nor the rest of the program. A message is sorted by a look at a
 * few of its bytes; only what is handled is parsed.
 *
 * Kinds overtake each other. A request must not be overtaken by the end of its own connection: it would be taken for a
 * new one then. So a request that repeats one which waits is dropped, and one that repeats the request of a connection
 * waits with the messages of connections.
 */
import { GRH_BYTES } from '../verbs/address/grh.js';
import { ATTRIBUTE } from './core/messages.js';
import { PortSpace, type PortSpaceName } from './core/serviceid.js';
import { FairQueue } from './fairqueue.js';
import { KeySet } from './keyset.js';

/** Kinds of messages, in the order in which a round handles them. */
type Kind = 'known' | 'requests' | 'others';

/** Messages that can wait, those that one round handles, and those that a millisecond allows. */
interface Limits {
  readonly waiting: number;
  readonly perRound: number;
  readonly perMs: number;
  /** Cost of a message that changes no connection, counted against `perMs`: ignored, refused, or a repetition. */
  readonly idle: number;
}

/** A host that opens or closes a thousand connections at once sends as many messages. */
const LIMITS: Readonly<Record<Kind, Limits>> = {
  // of a connection or an exchange that this end knows: its peer alone knows the id, but may repeat its messages
  known: { waiting: 1024, perRound: 16, perMs: 64, idle: 64 },
  // for a service that has a listener: more than a program can accept, and two that it does not accept
  requests: { waiting: 1024, perRound: 4, perMs: 16, idle: 16 },
  // what is to be refused, or is no message at all: rounds can be short, and a flood must not be paid for each
  others: { waiting: 32, perRound: 2, perMs: 1, idle: 1 },
};
const KINDS = Object.keys(LIMITS) as Kind[];

/** Messages that can wait in all. */
export const WAITING_MESSAGES = KINDS.reduce((sum, kind) => sum + LIMITS[kind].waiting, 0);

/** Sources that the key of a request tells apart: the id has the other 32 of 53 bits. */
const SOURCES = 2 ** 21;

/** Offset of the attribute in the MAD header, and of the fields in the body of a message. */
const ATTRIBUTE_AT = 16;
const BODY_AT = 24;
const REMOTE_COMM_ID_AT = BODY_AT + 4;
const SERVICE_ID_AT = BODY_AT + 8;

/** A received datagram: where it lies, and who has sent it. */
export interface ReceivedMad {
  readonly slot: number;
  /** Its bytes begin there, with the GRH. */
  readonly at: number;
  readonly bytes: number;
  /** MAC address of the sender, and its tag. */
  readonly mac: number;
  readonly vlanTci: number | undefined;
  /** Index of the P_Key by which it was taken. */
  readonly pkeyIndex: number;
  /** Identity of a request among those that wait. The inbox sets it; undefined: it is no such request. */
  requestKey: number | undefined;
}

/** The questions of the inbox about a message. */
export interface InboxHost {
  /** Whether an id names a connection or exchange of this end. */
  isKnown(id: number): boolean;
  /** Whether an id is that of the peer of a connection. */
  isPeer(id: number): boolean;
  /** Gives the receive back to the queue pair. */
  release(mad: ReceivedMad): void;
}

/** See the head of this file. */
export class Inbox {
  /** Datagrams that were dropped because too many of their kind were waiting. */
  dropped = 0;
  /** Requests that were dropped because they repeat one that waits, by message. */
  readonly repeated = { req: 0, sidr_req: 0 };
  readonly #queues: Readonly<Record<Kind, FairQueue<ReceivedMad>>>;
  /** Listeners by port space and port. */
  readonly #served = new Map<number, number>();
  readonly #allowances: Readonly<Record<Kind, Allowance>>;
  /** The path of the source of the message that is sorted. Used again and again, because most of a flood is dropped. */
  readonly #source: [number, number, number] = [0, 0, 0];
  readonly #requestKeys = new KeySet(LIMITS.requests.waiting + 1);

  constructor(readonly host: InboxHost) {
    const queue = (kind: Kind) => new FairQueue<ReceivedMad>(LIMITS[kind].waiting);
    this.#queues = { known: queue('known'), requests: queue('requests'), others: queue('others') };
    const allowance = (kind: Kind) => new Allowance(LIMITS[kind].waiting, LIMITS[kind].perMs);
    this.#allowances = { known: allowance('known'), requests: allowance('requests'), others: allowance('others') };
  }

  /** When the next round has a message to handle: `now`, or later; Infinity when none waits. @param now milliseconds */
  nextRound(now: number): number {
    let at = Number.POSITIVE_INFINITY;
    for (const kind of KINDS)
      if (this.#queues[kind].size > 0) at = Math.min(at, this.#allowances[kind].availableAt(now));
    return at;
  }

  /** A listener has a port from now on; `-1`: has no longer. */
  countListener(space: PortSpaceName, port: number, change: 1 | -1): void {
    const key = PortSpace[space] * 0x10000 + port;
    const count = (this.#served.get(key) ?? 0) + change;
    if (count > 0) this.#served.set(key, count);
    else this.#served.delete(key);
  }

  /** Sorts a datagram into its queue, or drops it. @param memory the memory that has it */
  add(mad: ReceivedMad, memory: DataView): void {
    const kind = this.#kindOf(mad, memory);
    mad.requestKey = undefined;
    readSource(mad, memory, this.#source);
    const queue = this.#queues[kind];
    // First of all, because it is the lot of most of a flood.
    if (queue.isFullFor(this.#source)) {
      this.dropped++;
      this.host.release(mad);
      return;
    }
    if (kind === 'requests' && !this.#addRequest(mad, memory)) {
      this.repeated[attributeOf(mad, memory) === ATTRIBUTE.REQ ? 'req' : 'sidr_req']++;
      this.host.release(mad);
      return;
    }
    const lost = queue.add(this.#source, mad);
    if (lost === undefined) return;
    this.#removeRequest(lost);
    this.dropped++;
    this.host.release(lost);
  }

  /**
   * Handles the share of one round.
   * @param now milliseconds @param handle returns whether the message has changed a connection
   */
  takeRound(now: number, handle: (mad: ReceivedMad) => boolean): void {
    for (const kind of KINDS) {
      const queue = this.#queues[kind];
      const allowance = this.#allowances[kind];
      const { perRound, idle } = LIMITS[kind];
      for (let left = perRound; left > 0 && queue.size > 0 && allowance.take(now); left--)
        if (!handle(this.#take(queue))) allowance.charge(idle - 1);
    }
  }

  #take(queue: FairQueue<ReceivedMad>): ReceivedMad {
    const mad = queue.take() as ReceivedMad;
    this.#removeRequest(mad);
    return mad;
  }

  /** @returns false when the request repeats one that waits */
  #addRequest(mad: ReceivedMad, memory: DataView): boolean {
    const id = memory.getUint32(mad.at + GRH_BYTES + BODY_AT);
    const [mac, high, low] = this.#source;
    const key = id * SOURCES + ((mac ^ high ^ low) & (SOURCES - 1));
    if (!this.#requestKeys.add(key)) return false;
    mad.requestKey = key;
    return true;
  }

  #removeRequest(mad: ReceivedMad): void {
    if (mad.requestKey !== undefined) this.#requestKeys.delete(mad.requestKey);
    mad.requestKey = undefined;
  }

  #kindOf({ at, bytes }: ReceivedMad, memory: DataView): Kind {
    if (bytes < GRH_BYTES + SERVICE_ID_AT + 8) return 'others';
    const mad = at + GRH_BYTES;
    switch (attributeOf({ at }, memory)) {
      case ATTRIBUTE.REQ:
      case ATTRIBUTE.SIDR_REQ: {
        if (this.host.isPeer(memory.getUint32(mad + BODY_AT))) return 'known';
        const prefix = memory.getUint32(mad + SERVICE_ID_AT);
        return prefix === 0 && this.#served.has(memory.getUint32(mad + SERVICE_ID_AT + 4)) ? 'requests' : 'others';
      }
      case ATTRIBUTE.SIDR_REP:
        return this.host.isKnown(memory.getUint32(mad + BODY_AT)) ? 'known' : 'others';
      default:
        return this.host.isKnown(memory.getUint32(mad + REMOTE_COMM_ID_AT)) ? 'known' : 'others';
    }
  }
}

/** Limit of the messages that are handled: a number at once, and a number more each millisecond. */
class Allowance {
  #left: number;
  #at = Number.NEGATIVE_INFINITY;

  constructor(
    readonly most: number,
    readonly perMs: number,
  ) {
    this.#left = most;
  }

  /** @returns whether there was one left */
  take(now: number): boolean {
    this.#left = Math.min(this.most, this.#left + (now - this.#at) * this.perMs);
    this.#at = now;
    if (this.#left < 1) return false;
    this.#left--;
    return true;
  }

  /** Takes messages of the allowance, even if it has fewer: then later messages wait longer. */
  charge(messages: number): void {
    this.#left -= messages;
  }

  /** Returns when the next `take` succeeds, at the earliest `now`. */
  availableAt(now: number): number {
    if (this.#left >= 1) return now;
    return Math.max(now, this.#at + (1 - this.#left) / this.perMs);
  }
}

const attributeOf = ({ at }: Pick<ReceivedMad, 'at'>, memory: DataView) =>
  memory.getUint16(at + GRH_BYTES + ATTRIBUTE_AT);

/**
 * Reads the path of the source into `path`: neighbour, network, host. An IPv4 address is a network. Of an IPv6 address
 * the upper half is, because its owner cannot choose it; hosts of a link share that half, and the udp link sees no
 * neighbours.
 */
function readSource({ at, bytes, mac }: ReceivedMad, memory: DataView, path: [number, number, number]): void {
  path[0] = mac;
  path[1] = 0;
  path[2] = 0;
  if (bytes < GRH_BYTES) return;
  if (memory.getUint8(at) >> 4 !== 6) path[1] = memory.getUint32(at + 32);
  else for (const half of [1, 2] as const) path[half] = halfAddress(memory, at + 8 * half);
}

/** 8 bytes of an address as a number. */
const halfAddress = (memory: DataView, at: number) => memory.getUint32(at) ^ memory.getUint32(at + 4);
