/**
 * The conversation of one check with a peer that sends requests. The check decides what becomes of each packet: it is
 * acknowledged, withheld, refused, or lost. Nothing is answered by itself.
 */
import { Op } from '../packet/opcodes.js';
import { ack, nak, type Packet, response } from '../packet/packets.js';
import { psnAfter, psnDistance } from '../packet/psn.js';
import type { RequesterCheck } from './check.js';
import { CheckEnd, Conversation, pattern, type Received, receivedText } from './conversation.js';
import type { CheckRecord } from './record.js';
import type { PeerRegion, Requester, Target, Traffic } from './target.js';

/** Nanoseconds of the code 0 of ACK timeouts. */
const TIMEOUT_UNIT = 4096;
/** Adapters raise shorter timeouts to this code. */
const FLOOR = 16;
/** Code of a timeout that is not known: the longest that is usual. */
const USUAL_TIMEOUT = 18;
/** Time in which a peer that does not wait for its timer reacts (ns). */
const REACTION = 8e6;
/** Times that something must come again before it is a reaction, and none of the peer's timer. */
const ROUNDS = 4;
/** Credit code of a responder without credits. */
const NO_CREDITS = 31;

/** Returns the time of a code of the ACK timeout, in nanoseconds. */
export const timeoutOf = (code: number): number => TIMEOUT_UNIT * 2 ** code;

/** One message of the peer: its packets in order; of a READ the one request. */
export type Message = readonly [Received, ...Received[]];

/** Receives the requests of one queue pair of the peer, and answers them as a check says. */
export class Service extends Conversation {
  #expected: number;
  /** The PSN behind all that has been received. */
  #end: number;
  /** Messages that the check has completed. */
  #completed = 0;
  /** New packets that were received before a check has asked for their message, by PSN. */
  readonly #early = new Map<number, Received>();

  constructor(
    check: RequesterCheck,
    /** The peer's queue pair. */
    readonly peer: Requester,
    /** The kind of messages that the check asks for. */
    readonly kind: Traffic,
    target: Target,
    record?: CheckRecord,
  ) {
    super(check, peer.port, target, record);
    this.#expected = peer.psn;
    this.#end = peer.psn;
  }

  /** Connects one more queue pair, whose packets and measurements are those of the same check. */
  async another(): Promise<Service> {
    const check = this.check as RequesterCheck;
    const peer = await this.target.requester?.(check.asks);
    if (peer === undefined || typeof peer === 'string')
      throw new CheckEnd('not reachable', peer ?? 'the peer sends no requests to us');
    return new Service(check, peer, this.kind, this.target, this.record);
  }

  /** The PSN of the next new request. */
  get expected(): number {
    this.#expected = this.peer.background?.behind(this.#expected) ?? this.#expected;
    return this.#expected;
  }

  set expected(psn: number) {
    this.#expected = psn;
  }

  /** Messages that are acknowledged, as ACKs count them. */
  get msn(): number {
    return (this.#completed + (this.peer.background?.count ?? 0)) & 0xffffff;
  }

  set msn(msn: number) {
    this.#completed = msn - (this.peer.background?.count ?? 0);
  }

  /** Our memory that the peer names. */
  get region(): PeerRegion {
    return this.peer.region;
  }

  /** The ACK timeout in nanoseconds, or the longest usual one if it is not known. */
  get timeout(): number {
    return timeoutOf(this.peer.timeout ?? USUAL_TIMEOUT);
  }

  /** The time after which a peer that retransmits by its timer has done so, floors of adapters included (ns). */
  get patience(): number {
    return 4 * Math.max(this.timeout, timeoutOf(FLOOR));
  }

  /** The time in which a peer reacts that does not wait for a timer (ns). */
  get reaction(): number {
    return Math.min(REACTION, this.timeout / 2);
  }

  /** Asks the peer for messages. */
  ask(count = 1, length = 8): void {
    this.peer.request({ opcode: this.kind, length, count });
  }

  /** Returns the number of PSNs that a request packet takes. */
  span({ bth, reth }: Received): number {
    return bth.opcode === Op.RDMA_READ_REQUEST ? Math.max(1, Math.ceil((reth?.length ?? 0) / this.mtu)) : 1;
  }

  /** The next packet, as of every conversation; one that is new is kept for `message`. */
  override async next(within?: number): Promise<Received | undefined> {
    const packet = await super.next(within);
    if (packet === undefined) return undefined;
    if (psnDistance(packet.bth.psn, this.expected) >= 0) this.#early.set(packet.bth.psn, packet);
    const end = psnAfter(packet.bth.psn, this.span(packet));
    if (psnDistance(end, this.#end) > 0) this.#end = end;
    return packet;
  }

  /** Returns the next packet of a kind within a time, however many others come; undefined if there is none. */
  async find(time: number, isWanted: (packet: Received) => boolean): Promise<Received | undefined> {
    const until = this.port.now() + time;
    for (;;) {
      const left = until - this.port.now();
      const packet = left > 0 ? await this.next(left) : undefined;
      if (packet === undefined || isWanted(packet)) return packet;
    }
  }

  /**
   * Waits until a peer that sends without being asked sends nothing more, since nothing is acknowledged.
   * @returns the PSN behind all that the peer has sent
   */
  async rest(): Promise<number> {
    const until = this.port.now() + this.patience;
    const isNew = ({ bth }: Received, end: number) => psnDistance(bth.psn, end) >= 0;
    for (let isDone = !this.peer.isEndless; !isDone && this.port.now() < until; ) {
      const end = this.#end;
      isDone = (await this.find(this.reaction / 2, (packet) => isNew(packet, end))) === undefined;
    }
    return psnDistance(this.#end, this.expected) > 0 ? this.#end : this.expected;
  }

  /** Returns the packet at the expected PSN; undefined if it does not come within a time. Others are passed over. */
  async following(time: number): Promise<Received | undefined> {
    const known = this.#early.get(this.expected);
    const packet = known ?? (await this.find(time, ({ bth }) => bth.psn === this.expected));
    if (packet === undefined) return undefined;
    this.#early.delete(packet.bth.psn);
    this.expected = psnAfter(packet.bth.psn, this.span(packet));
    return packet;
  }

  /** Returns the next new message of the peer. Repetitions of what was received before are passed over. */
  async message(what = `a ${this.kind}`): Promise<Message> {
    const packets: Received[] = [];
    for (;;) {
      const packet = (await this.following(this.patience)) ?? this.fail(`${what} does not come`);
      packets.push(packet);
      if (endsMessage(packet)) return packets as unknown as Message;
    }
  }

  /**
   * Does what the peer must ignore, and fails when a packet comes again because of it. A timer that adapts to the round
   * trip may repeat a message at just that time: a reaction is what comes in each of some rounds, and without cause in
   * none of the rounds between them.
   * @param after the action, as a finding tells it
   * @param provoke does it, and returns the message that still waits for its ACK, if one does
   * @param time time that a reaction may take (ns)
   * @returns the message that waits in the round without a reaction
   */
  async ignores<T extends Message | undefined>(
    after: string,
    provoke: () => Promise<T>,
    time = this.reaction,
  ): Promise<T> {
    const repetition = () => this.find(time, ({ bth }) => psnDistance(bth.psn, this.expected) < 0);
    let unprovoked: Received | undefined;
    for (let round = 1; ; round++) {
      const waiting = await provoke();
      const packet = await repetition();
      if (packet === undefined) return waiting;
      if (waiting !== undefined) {
        this.complete(waiting);
        const [message] = (await this.messages(1)) as [Message];
        unprovoked ??= await repetition();
        this.complete(message);
      }
      if (round < ROUNDS) continue;
      if (unprovoked !== undefined) this.notApplicable(`its timer repeats a message within ${time / 1e6} ms`);
      this.fail(`${after}: ${receivedText(packet)} comes again`);
    }
  }

  /** Waits for a packet to come again, as long as its timer may take. @returns undefined if it does not */
  async again(psn: number): Promise<Received | undefined> {
    return await this.find(this.patience, ({ bth }) => bth.psn === psn);
  }

  /** Asks for messages and returns them when all have come. Nothing is acknowledged. */
  async messages(count: number, length = 8): Promise<Message[]> {
    if (count > 1 && this.peer.isOneByOne) this.notApplicable('it sends one message at a time');
    this.ask(count, length);
    const found: Message[] = [];
    while (found.length < count) found.push(await this.message());
    return found;
  }

  /** Acknowledges everything up to a PSN. @returns when the ACK left */
  acknowledge(psn: number, credits = NO_CREDITS): number {
    return this.send(ack({ psn, msn: this.msn, syndrome: credits }));
  }

  /** Completes some messages whose last packet has a PSN. */
  completeAll(messages: number, psn: number): void {
    this.msn = (this.msn + messages) & 0xffffff;
    this.acknowledge(psn);
  }

  /** Says that a PSN is missing. @returns when the NAK left */
  refuse(psn: number): number {
    return this.send(nak.sequence({ psn, msn: this.msn }));
  }

  /** Says that there is no receive for a PSN. @returns when the NAK left */
  notReady(psn: number, timer: number): number {
    return this.send(nak.rnr({ psn, msn: this.msn, timer }));
  }

  /** Returns the responses to a READ. */
  data({ bth, reth }: Received, msn = this.msn + 1): Packet[] {
    const payload = pattern(reth?.length ?? 0, 7);
    return response.read({ psn: bth.psn, payload, mtu: this.mtu, msn: msn & 0xffffff });
  }

  /** Completes a message: acknowledges its last packet, or sends the data of a READ. */
  complete(message: Message, credits = NO_CREDITS): void {
    const [first] = message;
    this.msn = (this.msn + 1) & 0xffffff;
    if (first.bth.opcode === Op.RDMA_READ_REQUEST) this.send(this.data(first, this.msn));
    else this.acknowledge((message.at(-1) as Received).bth.psn, credits);
  }

  /** The peer still works: a message that it is asked for comes, and is completed. */
  async goesOn(after: string): Promise<void> {
    this.ask();
    this.complete(await this.message(`a ${this.kind} after ${after}`));
  }
}

/** Returns whether a request packet is the last of its message. */
function endsMessage({ bth: { opcode } }: Received): boolean {
  const isLong = opcode === Op.SEND_FIRST || opcode === Op.RDMA_WRITE_FIRST;
  return !isLong && opcode !== Op.SEND_MIDDLE && opcode !== Op.RDMA_WRITE_MIDDLE;
}
