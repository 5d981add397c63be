/** The program of the playground without its page: two ends, the network between them, and what they do. */
import { type CapturedRoce, decodeCaptured } from '../../src/probe/capture/roce.js';
import { Follower } from '../../src/probe/ladder/follow.js';
import type { Kind, LadderPacket } from '../../src/probe/ladder/packet.js';
import type { Wc } from '../../src/verbs/work/wc.js';
import type { SendWr } from '../../src/verbs/work/wr.js';
import { type ConnectionOptions, Host, SLOT_BYTES, SLOTS } from './host.js';
import { type End, type Flight, Network } from './network.js';
import { VirtualClock } from './virtualclock.js';

/** The operations of one end on the other. */
export const OPERATIONS = ['SEND', 'SEND with immediate', 'WRITE', 'READ', 'FETCH ADD'] as const;
/** The name of an operation. */
export type Operation = (typeof OPERATIONS)[number];

/** An operation to be done, with its options. */
export interface Order {
  readonly from: End;
  readonly operation: Operation;
  /** Repeated until it fills the message. */
  readonly text: string;
  /** Bytes of the message. */
  readonly bytes: number;
  /** Whether the request names a key that the peer does not have. */
  readonly isKeyWrong: boolean;
}

/** The outcome of an order. */
export interface Outcome {
  readonly number: number;
  readonly order: Order;
  /** `SUCCESS`, or the status of the completion. */
  readonly status: string;
  /** Nanoseconds from the post to the completion. */
  readonly took: number;
  /** The effect at the other end, for people. */
  readonly finding: string;
  /** Whether the bytes are where they should be. */
  readonly isRight: boolean;
}

interface Pending {
  readonly number: number;
  readonly order: Order;
  readonly posted: number;
  readonly slot: number;
  readonly data: Uint8Array;
  /** Which message of the connection it is. */
  readonly message: number;
}

/** Packets that are kept for the ladder. */
const MAX_PACKETS = 2000;

/** Two ends on a network, in virtual time. */
export class Session {
  readonly clock = new VirtualClock();
  readonly network = new Network((flight) => this.#onSent(flight));
  /** The packets that were sent, oldest first. */
  packets: LadderPacket[] = [];
  /** The data of the peer's last WRITE in the memory of each end. */
  readonly written: [Uint8Array, Uint8Array] = [new Uint8Array(0), new Uint8Array(0)];
  hosts!: readonly [Host, Host];
  isConnected = false;
  readonly #pending: readonly [Map<number, Pending>, Map<number, Pending>] = [new Map(), new Map()];
  readonly #sends: [number, number] = [0, 0];
  readonly #kinds = new WeakMap<Flight, Kind>();
  #follower = new Follower(0, 0);
  #sent = 0;
  #orders = 0;
  #connections = 0;

  /** @param onOutcome called when an order is done */
  private constructor(readonly onOutcome: (outcome: Outcome) => void) {}

  static async open(onOutcome: (outcome: Outcome) => void): Promise<Session> {
    const session = new Session(onOutcome);
    const [a, b] = session.network.ends;
    session.hosts = [await Host.open(session.clock, a), await Host.open(session.clock, b)];
    return session;
  }

  /** Connects both ends, after a reset if they were connected. */
  async connect(options: ConnectionOptions): Promise<void> {
    await this.reset();
    const [a, b] = this.hosts;
    this.#follower = new Follower(this.#connections++, options.pathMtu);
    await a.connect(b, options);
    await b.connect(a, options);
    this.isConnected = true;
  }

  /** Takes both ends back to RESET, and loses what is on its way. */
  async reset(): Promise<void> {
    this.isConnected = false;
    for (const host of this.hosts) await host.reset();
    this.network.clear();
    for (const pending of this.#pending) pending.clear();
    this.#sends.fill(0);
  }

  /** Lets the packets in flight be limited. */
  limitWindow(packets: number): void {
    for (const { qp } of this.hosts) qp.windowLimit = packets;
  }

  /** The number of orders that are not done. */
  get inProgress(): number {
    return this.#pending[0].size + this.#pending[1].size;
  }

  /** Posts a work request. @throws VerbsError as `qp.postSend`; Error if too many are in progress */
  post(order: Order): void {
    const { from, operation, bytes, text } = order;
    const pending = this.#pending[from];
    if (pending.size >= SLOTS) throw new Error(`${pending.size} operations are in progress, at most ${SLOTS} can be`);
    const used = new Set([...pending.values()].map(({ slot }) => slot));
    const slot = Array.from({ length: SLOTS }, (_, i) => (this.#orders + i) % SLOTS).find(
      (each) => !used.has(each),
    ) as number;
    const number = this.#orders + 1;
    const data = filled(operation === 'FETCH ADD' ? '' : text, operation === 'FETCH ADD' ? 8 : bytes);
    const [own, peer] = [this.hosts[from], this.hosts[from === 0 ? 1 : 0]];
    const start = slot * SLOT_BYTES;
    const source = operation === 'READ' ? peer.target : own.own;
    source.buffer.set(data, start);
    if (operation === 'READ') own.own.buffer.fill(0, start, start + bytes);
    own.qp.postSend(this.#request(order, number, own, peer, start, data.length));
    const message = operation.startsWith('SEND') ? this.#sends[from]++ : -1;
    pending.set(number, { number, order, posted: this.clock.now, slot, data, message });
    this.#orders = number;
  }

  #request(
    { operation, isKeyWrong }: Order,
    wrId: number,
    own: Host,
    peer: Host,
    start: number,
    length: number,
  ): SendWr {
    const sgList = own.own.sge(start, length);
    const remote = operation === 'FETCH ADD' ? peer.counter.remote : peer.target.remote;
    const rkey = isKeyWrong ? (remote.rkey ^ 0xff) >>> 0 : remote.rkey;
    if (operation === 'SEND') return { wrId, opcode: 'SEND', sgList };
    if (operation === 'SEND with immediate') return { wrId, opcode: 'SEND_WITH_IMM', sgList, immData: wrId };
    if (operation === 'FETCH ADD')
      return { wrId, opcode: 'ATOMIC_FETCH_AND_ADD', sgList, remoteAddr: remote.addr, rkey, compareAdd: 1n };
    const opcode = operation === 'READ' ? 'RDMA_READ' : 'RDMA_WRITE';
    return { wrId, opcode, sgList, remoteAddr: Number(remote.addr) + start, rkey };
  }

  /**
   * Lets time pass. The program takes its completions as they come.
   * @param mayGoOn asked after each event
   */
  advance(until: number, mayGoOn: () => boolean = () => true): void {
    this.clock.advance(until, () => {
      this.#poll();
      return mayGoOn();
    });
  }

  /** Lets time pass until a packet leaves or arrives, or nothing more will happen. */
  step(): void {
    const before = this.network.moves;
    this.advance(Number.POSITIVE_INFINITY, () => this.network.moves === before);
  }

  #poll(): void {
    const taken: [End, Wc][] = [];
    // messages first: the end that sends learns of them later
    for (const end of [0, 1] as const) this.hosts[end].poll((wc) => taken.push([end, wc]));
    for (const [end, wc] of taken) this.#complete(end, wc);
  }

  #complete(end: End, wc: Wc): void {
    const pending = this.#pending[end].get(wc.wrId);
    if (pending === undefined) return;
    this.#pending[end].delete(wc.wrId);
    const { number, order, posted } = pending;
    const took = this.clock.now - posted;
    if (wc.ok) this.onOutcome({ number, order, status: 'SUCCESS', took, ...this.#find(end, pending) });
    else {
      const { summary, likelyCauses } = wc.explain();
      this.onOutcome({
        number,
        order,
        status: wc.statusName,
        took,
        finding: likelyCauses[0] ?? summary,
        isRight: false,
      });
    }
  }

  /** Looks for the bytes at the other end. */
  #find(end: End, { order: { operation }, slot, data, message }: Pending): { finding: string; isRight: boolean } {
    const [own, peer] = [this.hosts[end], this.hosts[end === 0 ? 1 : 0]];
    const start = slot * SLOT_BYTES;
    const part = (bytes: Uint8Array) => bytes.subarray(start, start + data.length);
    if (operation === 'FETCH ADD') {
      const before = view(part(own.own.buffer)).getBigUint64(0, true);
      const after = view(peer.counter.buffer).getBigUint64(0, true);
      return { finding: `the counter was ${before}`, isRight: after > before };
    }
    const arrived = peer.messages.get(message);
    peer.messages.delete(message);
    if (operation === 'WRITE') this.written[end === 0 ? 1 : 0] = Uint8Array.from(part(peer.target.buffer));
    const found = { SEND: arrived?.data, WRITE: part(peer.target.buffer), READ: part(own.own.buffer) }[
      operation === 'SEND with immediate' ? 'SEND' : operation
    ];
    const isRight = found !== undefined && found.length === data.length && data.every((byte, i) => byte === found[i]);
    const imm = arrived?.immData === undefined ? '' : `, immediate ${arrived.immData}`;
    return { finding: isRight ? `every byte is there${imm}` : 'the bytes differ', isRight };
  }

  /** The purpose of a packet on its way. */
  kindOf(flight: Flight): Kind {
    return this.#kinds.get(flight) ?? 'other';
  }

  #onSent(flight: Flight): void {
    const { from: direction, bytes: data, sent: time, isLost } = flight;
    const packet = this.#follower.packet({
      number: ++this.#sent,
      time,
      direction,
      packet: decodeCaptured({ data }) as CapturedRoce,
      isLost,
    });
    this.#kinds.set(flight, packet.kind);
    this.packets.push(packet);
    // a new list now and then, rather than for each packet
    if (this.packets.length > 1.25 * MAX_PACKETS) this.packets = this.packets.slice(-MAX_PACKETS);
  }
}

function view(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Returns bytes that a text fills, again and again; zeroes without text. */
function filled(text: string, length: number): Uint8Array {
  const pattern = new TextEncoder().encode(text === '' ? '\0' : text);
  return Uint8Array.from({ length }, (_, i) => pattern[i % pattern.length] as number);
}
