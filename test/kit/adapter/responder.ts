/** A strict responder "as an adapter": it executes requests in memory of its own and judges the requester. */
import { ack, type Decoded, type Flow, nak, response } from '../../../src/probe/packet/packets.js';
import type { Random } from '../random.js';
import { RequestJudge } from './requests.js';
import {
  type Adapter,
  creditCode,
  distance,
  Habits,
  NO_CREDITS,
  PacketJudge,
  packetsFor,
  psnAfter,
  RD_ATOMIC,
  type Seen,
  see,
  takesReceive,
  Violation,
} from './rules.js';

export interface ResponderOptions {
  /** Addresses of packets from the adapter to the card. */
  readonly there: Flow;
  readonly mtu: number;
  /** First PSN of the card. */
  readonly psn: number;
  readonly random: Random;
  /** The memory that the card may access, at `va` under `rkey`. */
  readonly memory: Uint8Array;
  readonly va: bigint;
  readonly rkey: number;
  /** End-to-end credits in each ACK. */
  readonly credits?: boolean;
  /** Memory on demand: the first touch of a page of 4096 bytes is refused with an RNR NAK. */
  readonly onDemand?: boolean;
  /** An ACK leaves for each so many packets that ask for one, or after `ackDelay` nanoseconds. Default: 4 and 20 us. */
  readonly ackEvery?: number;
  readonly ackDelay?: number;
  /** RNR timer code. Default: 1, which is 10 us. */
  readonly rnrTimer?: number;
}

/** A message that took a receive. */
export interface Received {
  readonly data: Uint8Array;
  readonly imm?: number;
  readonly invalidated?: number;
}

const PAGE = 4096;
/** Nanoseconds until a page is there. */
const PAGE_TIME = 25_000;

export class AdapterResponder implements Adapter {
  deadline = Number.POSITIVE_INFINITY;
  /** Messages that took a receive, in order. */
  readonly received: Received[] = [];
  /** Counts of events, for tests that need to know that they happened. */
  readonly counts = { sequence: 0, rnr: 0, again: 0, acks: 0 };
  readonly #options: ResponderOptions;
  readonly #packets: PacketJudge;
  readonly #requests: RequestJudge;
  readonly #habits: Habits;
  #psn: number;
  #msn = 0;
  #receives = 0;
  /** A NAK was sent for the PSN that is expected. */
  #isNaked = false;
  /** Packets that asked for an ACK and have none. */
  #owed = 0;
  #parts: Uint8Array[] = [];
  #writeAt = 0;
  /** Results of the latest READs (none) and atomics, by PSN. */
  readonly #results = new Map<number, bigint | undefined>();
  /** Since when each page is there. */
  readonly #pages = new Map<number, number>();

  constructor(options: ResponderOptions) {
    this.#options = options;
    this.#psn = options.psn;
    this.#packets = new PacketJudge(options.there, options.mtu);
    this.#requests = new RequestJudge(options.psn, options.mtu, options.credits ?? false);
    this.#habits = new Habits(options.there, options.random);
  }

  /** Receives that are posted. */
  get receives(): number {
    return this.#receives;
  }

  postReceives(count: number): void {
    this.#receives += count;
  }

  inspect(bytes: Uint8Array, now: number): void {
    const seen = this.#packets.judge(bytes);
    if (['ACK', 'READ_RESPONSE', 'ATOMIC_ACK'].includes(seen.kind.operation))
      throw new Violation('a response to nothing', '9.7.5.1', bytes);
    if (seen.kind.operation !== 'CNP') this.#requests.judge(seen, now);
  }

  delivered(bytes: Uint8Array, now: number): void {
    this.#requests.answered(bytes, now);
  }

  quiet(): void {
    this.#requests.quiet();
  }

  receive(bytes: Uint8Array, now: number): void {
    const seen = see(bytes);
    if (seen.kind.operation === 'CNP') return;
    this.#habits.heed(seen.d, now);
    const ahead = distance(seen.d.bth.psn, this.#psn);
    if (ahead < 0) this.#repeat(seen);
    else if (ahead === 0) this.#take(seen, now);
    else if (!this.#isNaked) {
      this.counts.sequence++;
      this.#refuse(nak.sequence({ psn: this.#psn, msn: this.#msn }));
    }
  }

  expire(now: number): void {
    if (now >= this.deadline) this.#acknowledge();
  }

  take(): Uint8Array[] {
    return this.#habits.take();
  }

  #refuse(packet: ReturnType<typeof ack>): void {
    this.#isNaked = true;
    this.#settle();
    this.#habits.send(packet);
  }

  #take(seen: Seen, now: number): void {
    const { bth } = seen.d;
    if ((takesReceive(seen) && this.#receives === 0) || !this.#isPresent(seen, now)) {
      this.counts.rnr++;
      this.#refuse(nak.rnr({ psn: this.#psn, msn: this.#msn, timer: this.#options.rnrTimer ?? 1 }));
      return;
    }
    this.#isNaked = false;
    const { operation, isLast } = seen.kind;
    const count = operation === 'READ' ? packetsFor(seen.d.reth?.length ?? 0, this.#options.mtu) : 1;
    this.#psn = psnAfter(this.#psn, count);
    if (isLast) this.#msn = psnAfter(this.#msn);
    if (takesReceive(seen)) this.#receives--;
    if (operation === 'READ') this.#read(seen.d);
    else if (operation === 'ATOMIC') this.#atomic(seen.d);
    else this.#store(seen);
    if (operation === 'READ' || operation === 'ATOMIC' || !bth.ackReq) return;
    this.#owed++;
    this.deadline = Math.min(this.deadline, now + (this.#options.ackDelay ?? 20_000));
    if (this.#owed >= (this.#options.ackEvery ?? 4)) this.#acknowledge();
  }

  #repeat(seen: Seen): void {
    const { operation } = seen.kind;
    const { psn } = seen.d.bth;
    this.counts.again++;
    if (operation === 'READ') this.#read(seen.d, false);
    else if (operation !== 'ATOMIC') this.#acknowledge();
    else if (this.#results.has(psn)) this.#answerAtomic(psn);
  }

  #acknowledge(): void {
    this.#settle();
    this.counts.acks++;
    this.#habits.send(ack({ psn: psnAfter(this.#psn, -1), msn: this.#msn, syndrome: this.#syndrome() }));
  }

  /** Nothing is owed any more. */
  #settle(): void {
    this.#owed = 0;
    this.deadline = Number.POSITIVE_INFINITY;
  }

  #syndrome(): number {
    return this.#options.credits ? creditCode(this.#receives) : NO_CREDITS;
  }

  #store({ d, kind }: Seen): void {
    if (kind.isFirst) this.#parts = [];
    if (kind.operation === 'SEND') this.#parts.push(d.payload);
    else {
      if (d.reth) this.#writeAt = d.payload.length === 0 ? 0 : this.#offset(d.reth);
      this.#options.memory.set(d.payload, this.#writeAt);
      this.#writeAt += d.payload.length;
    }
    if (!kind.isLast || (kind.operation === 'WRITE' && d.immdt === undefined)) return;
    const [imm, invalidated] = [d.immdt, d.ieth];
    const data = Uint8Array.from(Buffer.concat(this.#parts));
    this.received.push({ data, ...(imm !== undefined && { imm }), ...(invalidated !== undefined && { invalidated }) });
  }

  #read({ bth, reth }: Decoded, isNew = true): void {
    this.#settle();
    if (isNew) this.#remember(bth.psn, undefined);
    const { length } = reth as NonNullable<Decoded['reth']>;
    const at = length === 0 ? 0 : this.#offset(reth as NonNullable<Decoded['reth']>);
    const payload = this.#options.memory.slice(at, at + length);
    const { mtu } = this.#options;
    this.#habits.send(...response.read({ psn: bth.psn, msn: this.#msn, payload, mtu, syndrome: this.#syndrome() }));
  }

  #atomic({ bth, atomiceth }: Decoded): void {
    this.#settle();
    const { swapAdd, compare, ...at } = atomiceth as NonNullable<Decoded['atomiceth']>;
    const { memory } = this.#options;
    const view = new DataView(memory.buffer, memory.byteOffset + this.#offset({ ...at, length: 8 }), 8);
    const original = view.getBigUint64(0, true);
    if (bth.opcode === 0x14) view.setBigUint64(0, BigInt.asUintN(64, original + swapAdd), true);
    else if (original === compare) view.setBigUint64(0, swapAdd, true);
    this.#remember(bth.psn, original);
    this.#answerAtomic(bth.psn);
  }

  #answerAtomic(psn: number): void {
    const original = this.#results.get(psn);
    if (original === undefined) throw new Violation(`PSN ${psn} was a READ`, '9.7.5.1.4');
    this.#habits.send(response.atomicAck({ psn, msn: this.#msn, syndrome: this.#syndrome(), original }));
  }

  #remember(psn: number, result: bigint | undefined): void {
    this.#results.set(psn, result);
    if (this.#results.size > RD_ATOMIC) this.#results.delete(this.#results.keys().next().value as number);
  }

  #offset({ va, rkey, length }: { va: bigint; rkey: number; length: number }): number {
    const { memory, va: base, rkey: own } = this.#options;
    const at = Number(va - base);
    if (rkey !== own || at < 0 || at + length > memory.length)
      throw new Violation(`no memory for ${length} bytes at ${va} with key ${rkey}`, '9.7.4.1.5');
    return at;
  }

  /** Returns whether all memory of a packet is there, and fetches it if not. */
  #isPresent({ d }: Seen, now: number): boolean {
    const at = d.reth ?? (d.atomiceth && { ...d.atomiceth, length: 8 });
    if (!this.#options.onDemand || at === undefined || at.length === 0) return true;
    const offset = this.#offset(at);
    let isPresent = true;
    for (let page = Math.floor(offset / PAGE); page * PAGE < offset + at.length; page++) {
      const since = this.#pages.get(page) ?? now + PAGE_TIME;
      this.#pages.set(page, since);
      isPresent &&= since <= now;
    }
    return isPresent;
  }
}
