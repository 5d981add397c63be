/**
 * A strict requester "as an adapter": many requests outstanding, a timer that fires when an ACK is merely late, few
 * packets that ask for an ACK. It judges each response of the card as it leaves.
 */
import { type Flow, type Packet, request } from '../../../src/probe/packet/packets.js';
import type { Random } from '../random.js';
import {
  type Adapter,
  creditsIn,
  distance,
  Habits,
  PacketJudge,
  packetsFor,
  psnAfter,
  RD_ATOMIC,
  rnrTime,
  type Seen,
  see,
  Violation,
} from './rules.js';

export interface Remote {
  readonly va: bigint;
  readonly rkey: number;
}

/** A request of the adapter. */
export type Operation =
  | { readonly kind: 'SEND'; readonly data: Uint8Array; readonly imm?: number }
  | { readonly kind: 'WRITE'; readonly data: Uint8Array; readonly imm?: number; readonly at: Remote }
  | { readonly kind: 'READ'; readonly length: number; readonly at: Remote }
  | { readonly kind: 'COMPARE_SWAP'; readonly at: Remote; readonly compare: bigint; readonly swap: bigint }
  | { readonly kind: 'FETCH_ADD'; readonly at: Remote; readonly add: bigint };

export interface RequesterOptions {
  /** Addresses of packets from the adapter to the card. */
  readonly there: Flow;
  readonly mtu: number;
  /** First PSN of the adapter. */
  readonly psn: number;
  readonly random: Random;
  readonly operations: readonly Operation[];
  /** RNR timer code of the card. */
  readonly rnrTimer: number;
  /** Receives that the card has posted so far, for judging its credits. */
  readonly posted: () => number;
  /** Packets outstanding. Default: 32. */
  readonly window?: number;
  /** Nanoseconds without an answer after which all is sent again. Default: 12 us, little more than the round trip. */
  readonly timeout?: number;
  /** One message of so many asks for an ACK. Default: 4. */
  readonly askEvery?: number;
  /** Whether the card may keep requests that arrive ahead of a gap. Default false: it drops them (go-back-N). */
  readonly keeps?: boolean;
  /**
   * Whether it requests as rxe does: one packet a turn, with a timeout far above the round trip; and it bears no ACK of
   * a packet that it is about to send again. Default false.
   */
  readonly rxe?: boolean;
}

interface Message {
  readonly operation: Operation;
  readonly first: number;
  readonly count: number;
  /** Messages, and messages that take a receive, up to the end of this one. */
  readonly number: number;
  readonly taken: number;
  readonly result: Uint8Array;
}

/** A packet to send; those of a READ's response after the first one are not sent unless it is asked for again. */
interface Slot {
  readonly message: Message;
  readonly index: number;
  readonly packet: Packet | undefined;
}

export class AdapterRequester implements Adapter {
  /** Counts of events, for tests that need to know that they happened. */
  readonly counts = { timeouts: 0, sequence: 0, rnr: 0, implied: 0 };
  readonly #options: RequesterOptions;
  readonly #packets: PacketJudge;
  readonly #habits: Habits;
  /** By distance from the first PSN. */
  readonly #slots: Slot[] = [];
  /** Distances of the oldest packet without an answer, of the next one to send, and of the furthest one sent. */
  #oldest = 0;
  #next = 0;
  #furthest = 0;
  #timer = Number.POSITIVE_INFINITY;
  #waitUntil = 0;
  #now = 0;
  /** Up to here it sends again without a NAK: the card could not know of it when it sent what is on its way. */
  #unasked = 0;

  // what has reached the card, and what it has said
  /** Distance up to which requests have reached the card in order, and whether one has come that is further. */
  #reached = 0;
  #hasGap = false;
  /** The same for a card that keeps requests, which are these, with their numbers of packets. */
  #possible = 0;
  readonly #kept = new Map<number, number>();
  #naked: number | undefined;
  #lastMsn = 0;
  #response: { next: number; end: number } | undefined;
  readonly #originals = new Map<number, bigint>();
  #marks = 0;

  constructor(options: RequesterOptions) {
    this.#options = options;
    this.#packets = new PacketJudge(options.there, options.mtu);
    this.#habits = new Habits(options.there, options.random);
    let taken = 0;
    for (const [i, operation] of options.operations.entries()) {
      if (operation.kind === 'SEND' || (operation.kind === 'WRITE' && operation.imm !== undefined)) taken++;
      this.#prepare(operation, i, taken);
    }
  }

  get isDone(): boolean {
    return this.#oldest === this.#slots.length;
  }

  /** The data of each READ, and the original value of each atomic, by operation. */
  results(): Uint8Array[] {
    const messages = new Set(this.#slots.map(({ message }) => message));
    return [...messages].map(({ result }) => result);
  }

  get #timeout(): number {
    return this.#options.timeout ?? (this.#options.rxe ? 1_000_000 : 12_000);
  }

  get deadline(): number {
    return Math.max(this.#timer, this.#waitUntil);
  }

  expire(now: number): void {
    this.#now = now;
    if (now < this.#waitUntil || this.isDone) return;
    if (now >= this.#timer) {
      this.counts.timeouts++;
      this.#next = this.#oldest;
    }
    this.#transmit();
    this.#timer = Math.min(this.#timer, now + this.#timeout);
    if (this.#timer <= now) this.#timer = now + 2 * this.#timeout;
  }

  take(): Uint8Array[] {
    return this.#habits.take();
  }

  quiet(): void {}

  delivered(bytes: Uint8Array): void {
    const { d, kind } = see(bytes);
    if (kind.operation === 'CNP') return;
    const traffic = d.ip.version === 4 ? d.ip.tos : d.ip.trafficClass;
    if ((traffic & 3) === 3) this.#marks++;
    const from = this.#distance(d.bth.psn);
    const count = kind.operation === 'READ' ? packetsFor(d.reth?.length ?? 0, this.#options.mtu) : 1;
    if (from === this.#reached) this.#reached += count;
    else if (from > this.#reached) this.#hasGap = true;
    if (this.#options.keeps) this.#keep(from, count);
    else this.#possible = this.#reached;
    if (from === this.#naked) this.#naked = undefined;
  }

  #keep(from: number, count: number): void {
    this.#kept.set(from, count);
    for (;;) {
      const next = this.#kept.get(this.#possible);
      if (next === undefined) break;
      this.#possible += next;
    }
  }

  inspect(bytes: Uint8Array): void {
    const seen = this.#packets.judge(bytes);
    const { operation } = seen.kind;
    if (operation === 'CNP') {
      if (this.#marks-- <= 0) throw new Violation('a CNP without a mark', 'A17.9.3', bytes);
      return;
    }
    if (operation === 'READ_RESPONSE') this.#judgeData(seen);
    else if (operation === 'ATOMIC_ACK') this.#judgeAtomic(seen);
    else if (operation !== 'ACK') throw new Violation('the card requests something', '9.7.5', bytes);
    if (seen.d.bth.ackReq || seen.d.bth.solicited) throw new Violation('a response that asks for an ACK', '9.2', bytes);
    if (seen.d.aeth) this.#judgeAeth(seen);
  }

  receive(bytes: Uint8Array, now: number): void {
    this.#now = now;
    const { d, kind } = see(bytes);
    if (kind.operation === 'CNP') return;
    this.#habits.heed(d, now);
    const at = this.#distance(d.bth.psn);
    if (at < this.#oldest || at >= this.#furthest) return;
    const syndrome = d.aeth?.syndrome ?? 0;
    const isAck = kind.operation === 'ACK' && syndrome >>> 5 === 0;
    if (this.#options.rxe && isAck && at >= Math.max(this.#next, this.#unasked))
      throw new Error(`an ACK of PSN ${d.bth.psn}, but rxe is about to send PSN ${this.#psn(this.#next)} again`);
    this.#acknowledge(isAck ? at + 1 : at);
    if (this.#oldest !== at) {
      if (this.#oldest < at) this.#imply();
      return;
    }
    if (kind.operation === 'ACK') this.#refused(syndrome);
    else this.#store(at, d.payload, d.atomicack);
  }

  // ---- the requests ----

  #prepare(operation: Operation, i: number, taken: number): void {
    const first = this.#slots.length;
    const psn = psnAfter(this.#options.psn, first);
    const packets = this.#packetsOf(operation, i, psn);
    const length = operation.kind === 'READ' ? operation.length : 0;
    const count = operation.kind === 'READ' ? packetsFor(length, this.#options.mtu) : packets.length;
    const result = new Uint8Array(operation.kind === 'READ' ? length : 8);
    const message = { operation, first, count, number: i + 1, taken, result };
    for (let index = 0; index < count; index++) this.#slots.push({ message, index, packet: packets[index] });
  }

  #packetsOf(operation: Operation, i: number, psn: number): Packet[] {
    const { mtu, askEvery = 4, operations } = this.#options;
    const ackReq = i % askEvery === askEvery - 1 || i === operations.length - 1;
    if (operation.kind === 'READ') return [request.read({ psn, ...operation.at, length: operation.length })];
    if (operation.kind === 'FETCH_ADD') return [request.fetchAdd({ psn, ...operation.at, add: operation.add })];
    if (operation.kind === 'COMPARE_SWAP') return [request.compareSwap({ psn, ...operation.at, ...operation })];
    const message = { psn, payload: operation.data, mtu, ackReq };
    const imm = operation.imm === undefined ? {} : { imm: operation.imm };
    if (operation.kind === 'SEND') return request.send({ ...message, ...imm });
    return request.write({ ...message, ...imm, ...operation.at });
  }

  /** Sends what the window and the limit of READs and atomics allow. */
  #transmit(): void {
    const { window = 32, rxe = false } = this.#options;
    let left = rxe ? 1 : window;
    while (left-- > 0 && this.#next < this.#slots.length && this.#next - this.#oldest < window) {
      const { message, index, packet } = this.#slots[this.#next] as Slot;
      const { operation } = message;
      if (isRemote(operation) && this.#outstanding(this.#next) >= RD_ATOMIC) return;
      // the window's last packet, and any that is repeated, asks for an ACK
      const isEnd = this.#next - this.#oldest === window - 1 || this.#next < this.#furthest;
      if (operation.kind === 'READ') {
        this.#habits.send(this.#rest(message, operation, index));
        this.#next = message.first + message.count;
      } else {
        const { bth } = packet as Packet;
        this.#habits.send({ ...(packet as Packet), bth: { ...bth, ackReq: bth.ackReq || isEnd } });
        this.#next++;
      }
      this.#furthest = Math.max(this.#furthest, this.#next);
    }
  }

  /** The request of a READ from a packet of its response on. */
  #rest(message: Message, operation: Operation & { kind: 'READ' }, index: number): Packet {
    const skipped = index * this.#options.mtu;
    return request.read({
      psn: psnAfter(this.#options.psn, message.first + index),
      va: operation.at.va + BigInt(skipped),
      rkey: operation.at.rkey,
      length: operation.length - skipped,
    });
  }

  #outstanding(before: number): number {
    const messages = new Set<Message>();
    for (const { message } of this.#slots.slice(this.#oldest, before))
      if (isRemote(message.operation)) messages.add(message);
    return messages.size;
  }

  // ---- reactions ----

  /** All requests before `end` are done, but for READs and atomics whose results have not come. */
  #acknowledge(end: number): void {
    const before = this.#oldest;
    while (this.#oldest < end && !isRemote((this.#slots[this.#oldest] as Slot).message.operation)) this.#oldest++;
    if (this.#oldest !== before) this.#progress();
  }

  #progress(): void {
    this.#next = Math.max(this.#next, this.#oldest);
    this.#timer = this.isDone ? Number.POSITIVE_INFINITY : this.#now + this.#timeout;
  }

  /** A later answer has come: the result for which we wait is lost. */
  #imply(): void {
    this.counts.implied++;
    this.#unasked = this.#furthest;
    this.#next = this.#oldest;
    this.#timer = this.#now;
  }

  #refused(syndrome: number): void {
    this.#next = this.#oldest;
    if (syndrome >>> 5 !== 1) this.counts.sequence++;
    else {
      this.counts.rnr++;
      this.#waitUntil = this.#now + rnrTime(syndrome);
    }
  }

  #store(at: number, payload: Uint8Array, original: bigint | undefined): void {
    const { message, index } = this.#slots[at] as Slot;
    if (original === undefined) message.result.set(payload, index * this.#options.mtu);
    else new DataView(message.result.buffer).setBigUint64(0, original, true);
    this.#oldest++;
    this.#progress();
  }

  // ---- the judge ----

  #distance(psn: number): number {
    return distance(psn, this.#options.psn);
  }

  /** The slot of a response's PSN. @throws Violation when no such request has reached the card */
  #slot({ d, bytes }: Seen): Slot {
    const at = this.#distance(d.bth.psn);
    const slot = this.#slots[at];
    if (slot === undefined || at >= this.#possible)
      throw new Violation(`only the requests before PSN ${this.#psn(this.#possible)} have arrived`, '9.7.5.1', bytes);
    return slot;
  }

  #psn(at: number): number {
    return psnAfter(this.#options.psn, at);
  }

  /** READ responses: of which request, in which order, of which length (IBTA 9.7.5.1). */
  #judgeData(seen: Seen): void {
    const { d, kind, bytes } = seen;
    const { message, index } = this.#slot(seen);
    if (message.operation.kind !== 'READ') throw new Violation('the request is no READ', '9.7.5.1', bytes);
    const at = message.first + index;
    const end = message.first + message.count;
    if (kind.isFirst) this.#response = { next: at, end };
    if (this.#response?.next !== at) throw new Violation('the response goes on elsewhere', '9.7.5.1', bytes);
    this.#response.next++;
    if (kind.isLast !== (at === end - 1)) throw new Violation('the response ends elsewhere', '9.7.5.1', bytes);
    const length = Math.min(this.#options.mtu, message.operation.length - index * this.#options.mtu);
    if (d.payload.length !== length) throw new Violation(`the response has not ${length} bytes`, '9.7.6.1', bytes);
  }

  /** The original value of an atomic is the same each time (IBTA 9.7.5.1.4). */
  #judgeAtomic(seen: Seen): void {
    const { d, bytes } = seen;
    const { message } = this.#slot(seen);
    const { kind } = message.operation;
    if (kind !== 'COMPARE_SWAP' && kind !== 'FETCH_ADD')
      throw new Violation('the request is no atomic', '9.7.5.1', bytes);
    const before = this.#originals.get(message.first);
    if (before !== undefined && before !== d.atomicack)
      throw new Violation(`the original value was ${before} before`, '9.7.5.1.4', bytes);
    this.#originals.set(message.first, d.atomicack ?? 0n);
  }

  #judgeAeth(seen: Seen): void {
    const { d, bytes, kind } = seen;
    const { syndrome, msn } = d.aeth as NonNullable<typeof d.aeth>;
    const type = syndrome >>> 5;
    const at = this.#distance(d.bth.psn);
    if (type === 0) this.#slot(seen);
    else if (kind.operation !== 'ACK') throw new Violation('a NAK with data', '9.7.5.1', bytes);
    else if (type === 1) this.#judgeRnr(seen, at);
    else if (syndrome === 0x60) this.#judgeSequence(seen, at);
    else throw new Violation(`an adapter expects no syndrome ${syndrome}`, '9.7.5.2.8', bytes);
    // messages that are complete before and with the response, and those that can be complete by now
    const least = this.#complete(type === 0 ? at + 1 : at);
    const most = this.#complete(this.#possible);
    if (msn < least || msn > most) throw new Violation(`MSN ${msn} is not in ${least} to ${most}`, '9.7.7.1', bytes);
    if (msn < this.#lastMsn) throw new Violation(`MSN ${msn} after ${this.#lastMsn}`, '9.7.7.1', bytes);
    this.#lastMsn = msn;
    const credits = type === 0 ? creditsIn(syndrome) : undefined;
    if (credits === undefined) return;
    const taken = this.#slots.findLast(({ message }) => message.number === msn)?.message.taken ?? 0;
    const posted = this.#options.posted();
    if (taken + credits > posted)
      throw new Violation(`${credits} credits after ${taken} messages, of ${posted} receives`, '9.7.7.2', bytes);
  }

  /** Messages that are complete when all requests before a distance are executed; a READ is with its request. */
  #complete(end: number): number {
    const last = this.#slots[end - 1];
    if (last === undefined) return 0;
    const { message, index } = last;
    return message.operation.kind === 'READ' || index === message.count - 1 ? message.number : message.number - 1;
  }

  #judgeRnr({ d, bytes }: Seen, at: number): void {
    const code = (d.aeth?.syndrome ?? 0) & 31;
    if (code !== this.#options.rnrTimer)
      throw new Violation(`RNR timer ${code}, not ${this.#options.rnrTimer}`, '9.7.5.2.8', bytes);
    const slot = this.#slots[at];
    const kind = slot?.message.operation.kind;
    const takes = slot?.packet !== undefined && (kind === 'SEND' ? slot.index === 0 : slot.packet.immdt !== undefined);
    if (!takes || at >= this.#possible)
      throw new Violation('an RNR NAK of no message that arrived', '9.7.5.2.8', bytes);
    // the packets behind it were dropped
    this.#reached = at;
    this.#possible = at;
    this.#hasGap = false;
  }

  /** One NAK for each gap, of its first PSN (IBTA 9.7.5.2.8). */
  #judgeSequence({ bytes }: Seen, at: number): void {
    if (this.#naked === at) throw new Violation('a second NAK of one gap', '9.7.5.2.8', bytes);
    const hasGap = this.#options.keeps ? [...this.#kept.keys()].some((kept) => kept > at) : this.#hasGap;
    if (at < this.#reached || at > this.#possible || !hasGap)
      throw new Violation(`a NAK, but PSN ${this.#psn(this.#reached)} is expected`, '9.7.5.2.8', bytes);
    this.#naked = at;
    this.#hasGap = false;
  }
}

function isRemote({ kind }: Operation): boolean {
  return kind === 'READ' || kind === 'COMPARE_SWAP' || kind === 'FETCH_ADD';
}
