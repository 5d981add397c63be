/**
 * The requester of a peer that is wrong on purpose. It sends what it is asked for at once, keeps it until it is
 * acknowledged, and repeats it after a NAK, an implied NAK, or its timer. Without bugs it is correct.
 */
import type { PeerRegion, Requester, Traffic, TrafficRequest } from '../../../src/probe/checks/target.js';
import { decode } from '../../../src/probe/packet/decode.js';
import { encode } from '../../../src/probe/packet/encode.js';
import type { Decoded } from '../../../src/probe/packet/frame.js';
import { CNP, Op } from '../../../src/probe/packet/opcodes.js';
import { type Flow, frameOf, type Packet, request, reverse } from '../../../src/probe/packet/packets.js';
import type { Arrival, PacketPort } from '../../../src/probe/script/port.js';

/** The bugs, and what each of them does. */
export const REQUESTER_BUGS = {
  nakRestartsMessage: 'after a NAK the whole message is sent again',
  nakSkips: 'after a NAK the missing packet itself is left out',
  nakIgnored: 'NAKs are not heeded',
  timerEarly: 'the timer has a quarter of its time',
  timerTicks: 'the timer is 4 ms early',
  timerLate: 'the timer has eight times its time',
  timerFloor: 'codes of the timer below 16 act as 16',
  timerShort: 'after the first message the first time of the timer is 5 ms',
  timerShortSometimes: 'the first time of the timer is 5 ms for each third message',
  timerAdaptive: 'the timer starts with a quarter of its time, and doubles up to four times it',
  noTimer: 'there is no timer',
  retryLess: 'the last retry is left out',
  retryMore: 'there are twice as many retries',
  retryForEver: 'there is no limit of retries',
  nakCopiesCost: 'each copy of a NAK costs a retry',
  nakStaleHeeded: 'a NAK of an acknowledged PSN causes a retransmission',
  nakFutureHeeded: 'a NAK of a PSN that was never sent causes a retransmission',
  rnrIgnored: 'the timer of an RNR NAK is not heeded',
  rnrNever: 'after an RNR NAK the SEND is given up',
  rnrMore: 'there is one RNR retry more',
  rnrEnds: 'an RNR retry count of 7 has an end',
  creditsIgnored: 'credits are not heeded',
  creditsStall: 'without credits nothing is sent for ever',
  creditsHoldWrites: 'WRITEs wait for credits, too',
  ackOfOneOnly: 'an ACK completes the message of its PSN only',
  ackStaleTaken: 'an ACK of an acknowledged PSN completes everything',
  ackStaleRepeats: 'an ACK of an acknowledged PSN causes a retransmission',
  ackFutureTaken: 'an ACK of a PSN that was never sent completes everything',
  readByTimer: 'a gap in the response to a READ is not noticed before the timer',
  readWhole: 'after a gap the whole READ is repeated',
  readRestAtStart: 'the repeated READ has the address of the first one',
  readGapTaken: 'a gap in the response to a READ is not noticed',
  readDuplicateRepeats: 'a duplicate READ response causes a retransmission',
  readOrderTaken: 'the opcodes of READ responses are not looked at',
  readLengthTaken: 'the lengths of READ responses are not looked at',
  readShortResumed: 'what a READ response lacks is requested with the PSN of the next request',
  cnpIgnored: 'CNPs are not heeded',
  cnpForEver: 'the rate that CNPs have lowered does not rise again',
  adaptiveFlood: 'after eight messages the timer has 10 us',
  nakSometimes: 'each fifth NAK is not heeded',
  timerThird: 'the third time of the timer is a quarter of what it has to be',
  rnrTicks: 'an RNR timer of more than 50 ms is not heeded',
  messageShort: 'the first packet of a message of several has four bytes less',
} as const;

export type RequesterBug = keyof typeof REQUESTER_BUGS;

const MTU = 1024;
const REGION: PeerRegion = { va: 0x6000_0000_0000n, rkey: 0x9abc00, length: 65536 };
const FIRST_PSN = 2000;
/** Times of RNR timer codes in nanoseconds, as far as checks use them. */
export const RNR_TIMES: Readonly<Record<number, number>> = { 1: 10_000, 12: 640_000, 20: 10_240_000, 26: 81_920_000 };

/** After a CNP its packets are so far apart, for so long (ns). */
const PACED = 20_000;
const PACED_FOR = 10e6;

/** Attributes of its connection. */
type Attributes = Required<Pick<Requester, 'timeout' | 'retryCnt' | 'rnrRetry' | 'hasFlowControl'>>;

/** A request packet that is not acknowledged. */
interface Flying {
  readonly packet: Packet;
  /** PSN of the first packet of its message. */
  readonly start: number;
  /** Number of PSNs. */
  readonly span: number;
  /** Of the rest of a READ: all of it. */
  readonly whole?: Flying;
}

/** A message that was asked for and is not sent. */
type Waiting = Omit<TrafficRequest, 'count'>;

const distance = (a: number, b: number): number => ((a - b) << 8) >> 8;
const after = (psn: number, packets: number): number => (psn + packets) & 0xffffff;

/** The state that all queue pairs of a double share. */
export interface Peer {
  readonly bug?: string | undefined;
  now: number;
}

export class DoubleRequester implements PacketPort, Requester {
  readonly mtu = MTU;
  readonly psn = FIRST_PSN;
  readonly region = REGION;
  readonly offers: readonly Traffic[] = ['SEND', 'WRITE', 'READ'];
  readonly timeout: number;
  readonly retryCnt: number;
  readonly rnrRetry: number;
  readonly hasFlowControl: boolean;
  readonly #out: Arrival[] = [];
  #flying: Flying[] = [];
  #next = FIRST_PSN;
  #deadline = Number.POSITIVE_INFINITY;
  #retries = 0;
  #isError = false;
  /** Number of times that everything was acknowledged. */
  #rests = 0;
  #waiting: Waiting[] = [];
  #hasCredits = true;
  /** The PSN that an RNR NAK has refused. */
  #notReady: number | undefined;
  #rnrs = 0;
  #naks = 0;
  /** Whether a NAK, or a gap in a READ's response, was heeded since the last progress. */
  #isHeeded = false;
  /** Until when its packets are paced, and when the next of them may leave. */
  #pacedUntil = 0;
  #mayLeave = 0;

  constructor(
    readonly peer: Peer,
    readonly flow: Flow,
    attributes: Attributes,
  ) {
    this.timeout = attributes.timeout;
    this.retryCnt = attributes.retryCnt;
    this.rnrRetry = attributes.rnrRetry;
    this.hasFlowControl = attributes.hasFlowControl;
  }

  get port(): PacketPort {
    return this;
  }

  #has(bug: RequesterBug): boolean {
    return this.peer.bug === bug;
  }

  now(): number {
    return this.peer.now;
  }

  request({ opcode, length, count }: TrafficRequest): number {
    if (this.#isError) return this.now();
    for (let i = 0; i < count; i++) this.#waiting.push({ opcode, length });
    this.#pump();
    return this.now();
  }

  /** Sends the messages that credits allow. */
  #pump(): void {
    for (let [next] = this.#waiting; next !== undefined && this.#mayStart(next); [next] = this.#waiting) {
      this.#waiting.shift();
      this.#start(next);
    }
    if (this.#deadline === Number.POSITIVE_INFINITY) this.#arm();
  }

  /** Without credits there is one SEND at a time. */
  #mayStart({ opcode }: Waiting): boolean {
    if (this.#hasCredits || this.#has('creditsIgnored')) return true;
    if (opcode !== 'SEND') return !this.#has('creditsHoldWrites');
    return this.#flying.length === 0 && !this.#has('creditsStall');
  }

  #start({ opcode, length }: Waiting): void {
    const from = this.#flying.length;
    const start = this.#next;
    const span = Math.max(1, Math.ceil(length / MTU));
    const at = { psn: start, va: REGION.va, rkey: REGION.rkey };
    const payload = new Uint8Array(length);
    if (opcode === 'READ') this.#flying.push({ packet: request.read({ ...at, length, ackReq: true }), start, span });
    else {
      const packets = opcode === 'SEND' ? request.send({ ...at, payload, mtu: MTU }) : this.#write(at, payload);
      for (const packet of packets) this.#flying.push({ packet, start, span: 1 });
    }
    this.#next = after(start, span);
    for (const { packet } of this.#flying.slice(from)) this.#say(packet);
  }

  #write(at: { psn: number; va: bigint; rkey: number }, payload: Uint8Array): Packet[] {
    return request.write({ ...at, payload, mtu: MTU });
  }

  send(bytes: Uint8Array): number {
    if (!this.#isError) this.#response(decode(bytes));
    return this.peer.now;
  }

  async receive(until: number): Promise<Arrival | undefined> {
    for (;;) {
      this.#out.sort((a, b) => a.at - b.at);
      const [first] = this.#out;
      const next = Math.min(first?.at ?? Number.POSITIVE_INFINITY, this.#deadline);
      if (next > until) {
        this.peer.now = Math.max(this.peer.now, until);
        return undefined;
      }
      this.peer.now = Math.max(this.peer.now, next);
      if (first !== undefined && first.at <= this.#deadline) return this.#out.shift();
      this.#expire();
    }
  }

  #say(packet: Packet): void {
    const { now } = this.peer;
    const at = now < this.#pacedUntil ? Math.max(now, this.#mayLeave) : now;
    this.#mayLeave = at + PACED;
    const isShort = this.#has('messageShort') && packet.payload.length === MTU && packet.reth !== undefined;
    const sent = isShort ? { ...packet, payload: packet.payload.subarray(4) } : packet;
    this.#out.push({ frame: encode(frameOf(reverse(this.flow), sent)), at });
  }

  /** Starts the ACK timer if something is in flight. */
  #arm(): void {
    const code = this.#has('timerFloor') ? Math.max(16, this.timeout) : this.timeout;
    let time = 4096 * 2 ** code * 1.5;
    if (this.#has('timerEarly') || (this.#has('timerThird') && this.#retries === 2)) time /= 4;
    if (this.#has('timerTicks')) time = time / 1.5 - 4e6;
    if (this.#has('timerLate')) time *= 8;
    if (this.#has('timerAdaptive')) time *= Math.min(4, 2 ** (this.#retries - 2));
    const isShort = this.#has('timerShort')
      ? this.#rests >= 1
      : this.#has('timerShortSometimes') && this.#rests % 3 === 2;
    if (isShort && this.#retries === 0) time = 5e6;
    if (this.#has('adaptiveFlood') && this.#rests >= 8) time = 10_000;
    const isOff = this.#flying.length === 0 || this.#has('noTimer');
    this.#deadline = isOff ? Number.POSITIVE_INFINITY : this.peer.now + time;
  }

  #expire() {
    const psn = this.#notReady;
    this.#notReady = undefined;
    if (psn !== undefined) return this.#sendAgain(psn);
    this.#isHeeded = false;
    this.#retry(this.#flying[0]?.packet.bth.psn ?? this.#next);
  }

  /** Sends again from a PSN on. */
  #retry(psn: number) {
    let most = this.retryCnt;
    if (this.#has('retryLess')) most--;
    if (this.#has('retryMore')) most *= 2;
    const isFlooding = this.#has('adaptiveFlood') && this.#rests >= 8;
    if (this.#retries >= most && !this.#has('retryForEver') && !isFlooding) return this.#fail();
    this.#retries++;
    this.#sendAgain(psn);
  }

  #sendAgain(psn: number): void {
    const [first] = this.#flying;
    if (first?.whole !== undefined && this.#has('readWhole')) this.#flying[0] = first.whole;
    const from = this.#flying[0]?.packet.bth.psn ?? psn;
    const start = this.#has('readWhole') && distance(from, psn) < 0 && first?.whole ? from : psn;
    for (const { packet } of this.#flying) if (distance(packet.bth.psn, start) >= 0) this.#say(packet);
    this.#arm();
  }

  #fail(): void {
    this.#isError = true;
    this.#waiting = [];
    this.#flying = [];
    this.#deadline = Number.POSITIVE_INFINITY;
  }

  #response({ bth, aeth, payload }: Decoded) {
    const { opcode, psn } = bth;
    if (opcode === CNP) return this.#congested();
    const syndrome = aeth?.syndrome ?? 0;
    const isAck = opcode === Op.ACKNOWLEDGE && syndrome >>> 5 === 0;
    if (distance(psn, this.#next) >= 0) {
      if (isAck && this.#has('ackFutureTaken')) this.#acknowledged(after(this.#next, -1));
      if (syndrome === 0x60 && this.#has('nakFutureHeeded')) this.#sendAgain(this.#flying[0]?.packet.bth.psn ?? psn);
      return;
    }
    if (opcode !== Op.ACKNOWLEDGE) return this.#data(opcode, psn, payload);
    const [first] = this.#flying;
    const isStale = first === undefined || distance(psn, first.packet.bth.psn) < 0;
    if (isAck && this.hasFlowControl) this.#hasCredits = syndrome === 31;
    if (isStale) this.#stale(isAck);
    else if (isAck) this.#acknowledged(psn);
    else if (syndrome === 0x60) this.#refused(psn);
    else if (syndrome >>> 5 === 1) this.#rnr(psn, syndrome & 31);
    this.#pump();
  }

  #congested(): void {
    if (this.#has('cnpIgnored') || this.#flying.length === 0) return;
    this.#pacedUntil = this.#has('cnpForEver') ? Number.POSITIVE_INFINITY : this.peer.now + PACED_FOR;
  }

  /** An ACK or NAK of a PSN that is acknowledged. */
  #stale(isAck: boolean): void {
    const [first] = this.#flying;
    if (first === undefined) return;
    if (isAck && this.#has('ackStaleTaken')) this.#acknowledged(after(this.#next, -1));
    if (isAck && this.#has('ackStaleRepeats')) this.#sendAgain(first.packet.bth.psn);
    if (!isAck && this.#has('nakStaleHeeded')) this.#sendAgain(first.packet.bth.psn);
  }

  #rnr(psn: number, code: number) {
    if (this.#notReady !== undefined || !this.#acknowledged(after(psn, -1))) return;
    let most = this.rnrRetry === 7 ? Number.POSITIVE_INFINITY : this.rnrRetry;
    if (this.#has('rnrMore')) most++;
    if (this.#has('rnrEnds')) most = Math.min(most, 7);
    if (++this.#rnrs > most || this.#has('rnrNever')) return this.#fail();
    this.#notReady = psn;
    const isLong = this.#has('rnrTicks') && code >= 24;
    this.#deadline = this.peer.now + (this.#has('rnrIgnored') || isLong ? 1000 : (RNR_TIMES[code] ?? 1e9));
  }

  /** Everything up to a PSN is acknowledged. @returns false when the data of a READ is missing */
  #acknowledged(psn: number): boolean {
    const before = this.#flying.length;
    const isMissing = ({ packet, span }: Flying) =>
      packet.bth.opcode === Op.RDMA_READ_REQUEST && distance(after(packet.bth.psn, span - 1), psn) <= 0;
    const end = this.#flying.findIndex((one) => isMissing(one) || distance(one.packet.bth.psn, psn) > 0);
    const stop = this.#flying[end];
    const done = end < 0 ? before : end;
    const message = this.#flying[done - 1]?.start;
    if (this.#has('ackOfOneOnly')) this.#flying = this.#flying.filter(({ start }, i) => i >= done || start !== message);
    else this.#flying.splice(0, done);
    if (this.#flying.length < before) this.#advanced();
    if (stop === undefined || !isMissing(stop)) return true;
    this.#gap(stop);
    return false;
  }

  #advanced(): void {
    this.#retries = 0;
    this.#rnrs = 0;
    this.#isHeeded = false;
    this.#notReady = undefined;
    if (this.#flying.length === 0) this.#rests++;
    this.#arm();
  }

  #refused(psn: number) {
    if (this.#has('nakIgnored') || (this.#has('nakSometimes') && ++this.#naks % 5 === 0)) return;
    const { start = psn } = this.#flying.find(({ packet }) => packet.bth.psn === psn) ?? {};
    if (this.#has('nakRestartsMessage')) return this.#sendAgain(start);
    if (!this.#acknowledged(after(psn, -1)) || (this.#isHeeded && !this.#has('nakCopiesCost'))) return;
    this.#isHeeded = true;
    this.#retry(this.#has('nakSkips') ? after(psn, 1) : psn);
  }

  /** A response to a later PSN has come than the one that is missing. */
  #gap({ packet }: Flying) {
    if (this.#isHeeded || this.#has('readByTimer')) return;
    this.#isHeeded = true;
    this.#retry(packet.bth.psn);
  }

  /** A response to a READ. */
  #data(opcode: number, psn: number, payload: Uint8Array) {
    const endsHere = opcode === Op.RDMA_READ_RESPONSE_LAST || opcode === Op.RDMA_READ_RESPONSE_ONLY;
    const [first] = this.#flying;
    if (first === undefined) return;
    const ahead = distance(psn, first.packet.bth.psn);
    if (ahead < 0 && this.#has('readDuplicateRepeats')) return this.#sendAgain(first.packet.bth.psn);
    if (ahead < 0) return;
    if (this.#has('readGapTaken') && endsHere) this.#flying.shift();
    if (ahead > 0 && this.#has('readGapTaken')) return;
    if (ahead > 0) return this.#gap(first);
    const { reth } = first.packet;
    if (reth === undefined) return this.#fail();
    const isLast = first.span === 1;
    const bytes = isLast ? reth.length : MTU;
    if (isLast !== endsHere && !this.#has('readOrderTaken')) return this.#fail();
    if (isLast && payload.length < bytes && this.#has('readShortResumed')) {
      this.#flying[0] = this.#rest(first, payload.length);
      return;
    }
    if (payload.length !== bytes && !this.#has('readLengthTaken')) return this.#fail();
    this.#flying.shift();
    if (!endsHere) this.#flying.unshift(this.#rest(first, MTU));
    this.#advanced();
  }

  /** The request of what is missing of a READ. */
  #rest(of: Flying, bytes: number): Flying {
    const { packet, start, span, whole = of } = of;
    const { va, rkey, length } = packet.reth as NonNullable<Packet['reth']>;
    const psn = after(packet.bth.psn, 1);
    const at = this.#has('readRestAtStart') ? va : va + BigInt(bytes);
    const rest = request.read({ psn, va: at, rkey, length: length - bytes, ackReq: true });
    return { packet: rest, start, span: span - 1, whole };
  }
}
