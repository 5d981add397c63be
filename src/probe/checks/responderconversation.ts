/**
 * The conversation of one check with the peer. It counts PSNs and keeps the packets as evidence. Each method looks at
 * as little as it can, so that one fault of a peer shows in the check that is meant for it, and not in all.
 */
import { setTimeout } from '../../base/timers.js';
import { bytesHex } from '../packet/hex.js';
import { Op } from '../packet/opcodes.js';
import { type Packet, request } from '../packet/packets.js';
import { psnAfter, psnDistance } from '../packet/psn.js';
import type { ResponderCheck } from './check.js';
import {
  CheckEnd,
  Conversation,
  isAck,
  isNak,
  isSame,
  Nak,
  pattern,
  type Received,
  receivedText,
} from './conversation.js';
import type { CheckRecord } from './record.js';
import type { Operation, PeerRegion, Responder, ResponderOptions, Target } from './target.js';

export { CheckEnd, isSame, Nak, pattern, type Received, receivedText } from './conversation.js';

/** All operations, those first that show the most for the least. */
const OPERATIONS: readonly Operation[] = ['WRITE', 'READ', 'ATOMIC', 'SEND'];
/** The needs of a check for which any request is good enough. */
export const REQUESTS: ResponderOptions = { receives: false, anyOf: OPERATIONS };
/** The needs of a check that sends messages of several packets. */
export const LONG_REQUESTS: ResponderOptions = { receives: false, anyOf: ['WRITE', 'SEND'] };

/** Time in which a packet comes that another one has overtaken (ns). */
const OVERTAKEN = 20e6;

/** Time without an answer after which requests are sent again (ns), and how often they are. */
const [REPEAT_AFTER, REPEATS] = [125e6, 3];

/** Times that a request is sent which meets no receive yet, and the time between them (ms). */
const RNR_TRIES = 20;
const RNR_WAIT_MS = 25;

/** Offset of the WRITE that shows that a peer still works: the last bytes of the least memory that a peer offers. */
const ALIVE_AT = 16384 - 8;

/** Returns whether a response has come twice: the path has duplicated it, or a READ was repeated. */
const isCopy = (a: Received, b: Received): boolean => a.bth.psn === b.bth.psn && isSame(a.payload, b.payload);

/** Returns the index of the first response to a READ that is missing. */
function missingOf(pieces: readonly Received[], psn: number, packets: number): number {
  const heard = new Set(pieces.map(({ bth }) => psnDistance(bth.psn, psn)));
  const missing = Array.from({ length: packets }, (_, i) => i).find((i) => !heard.has(i));
  return missing ?? 0;
}

/** Options of a request of any kind. */
export interface RequestOptions {
  /** PSN. Absent: the next one, which is counted. */
  readonly psn?: number;
  /** Remote key. Absent: that of the peer's memory. */
  readonly rkey?: number;
}

/** Sends to one queue pair of the peer and looks at what it answers. */
export class ResponderConversation extends Conversation {
  /** The PSN of the next new request. */
  psn: number;
  /** The PSN of the last NAK of a gap that a check has waited for. */
  #gap: number | undefined;
  readonly #check: ResponderCheck;

  constructor(
    check: ResponderCheck,
    /** The peer's queue pair. */
    readonly peer: Responder,
    target: Target,
    record?: CheckRecord,
  ) {
    super(check, peer.port, target, record);
    this.#check = check;
    this.psn = peer.psn;
  }

  /** Connects one more queue pair, whose packets and measurements are those of the same check. */
  async another(options: ResponderOptions = this.#check.needs): Promise<ResponderConversation> {
    const peer = await this.target.responder(options);
    if (typeof peer === 'string') throw new CheckEnd('not reachable', peer);
    return new ResponderConversation(this.#check, peer, this.target, this.record);
  }

  /** The peer's memory with all rights. */
  get region(): PeerRegion {
    return this.peer.region;
  }

  /** Returns the PSN of a new request of some packets, and counts them. */
  take(packets = 1): number {
    const { psn } = this;
    this.psn = psnAfter(psn, packets);
    return psn;
  }

  /** Returns whether the peer permits an operation. */
  permits(operation: Operation): boolean {
    if (operation === 'SEND') return this.peer.receives > 0;
    return this.peer.permits?.includes(operation) ?? true;
  }

  /** Returns a request of one packet and at most eight bytes, which wants an answer, of a kind that is permitted. */
  request(seed = 1, { psn = this.take(), rkey = this.region.rkey }: RequestOptions = {}): Packet {
    const { va } = this.region;
    switch (OPERATIONS.find((one) => this.permits(one))) {
      case 'WRITE':
        return request.writeOnly({ psn, va, rkey, payload: pattern(8, seed), ackReq: true });
      case 'READ':
        return request.read({ psn, va, rkey, length: 8, ackReq: true });
      case 'ATOMIC':
        return request.fetchAdd({ psn, va, rkey, add: BigInt(seed), ackReq: true });
      default:
        return request.sendOnly({ psn, payload: pattern(8, seed), ackReq: true });
    }
  }

  /** Returns the packets of a new WRITE, or of a SEND if the peer permits no WRITE. */
  long(payload: Uint8Array): Packet[] {
    return this.permits('WRITE') ? this.write(payload) : this.message(payload);
  }

  /** Returns the packets of a new WRITE that requests an ACK. */
  write(payload: Uint8Array, offset = 0): Packet[] {
    const { rkey, va } = this.region;
    const psn = this.take(Math.max(1, Math.ceil(payload.length / this.mtu)));
    return request.write({ psn, payload, mtu: this.mtu, rkey, va: va + BigInt(offset) });
  }

  /** Returns the packets of a new SEND that requests an ACK. */
  message(payload: Uint8Array): Packet[] {
    const psn = this.take(Math.max(1, Math.ceil(payload.length / this.mtu)));
    return request.send({ psn, payload, mtu: this.mtu });
  }

  /** The next packet. Requests without an answer are sent again, which the run counts. Fails when none comes. */
  override async answer(to: string): Promise<Received> {
    return (await this.nextOrAgain()) ?? this.fail(`no answer to ${to}`);
  }

  /** The next packet that is none of an earlier PSN: such come when a request was sent again that was answered. */
  async answerTo(psn: number, what: string): Promise<Received> {
    return (await this.nextFrom(psn)) ?? this.fail(`no answer to ${what}`);
  }

  /** The next packet, as `answerTo`. @returns undefined if none comes although requests are sent again */
  async nextFrom(psn: number): Promise<Received | undefined> {
    for (;;) {
      const packet = await this.nextOrAgain();
      if (packet === undefined || psnDistance(packet.bth.psn, psn) >= 0) return packet;
    }
  }

  /** The next packet. Requests without an answer are sent again. @returns undefined if none comes nevertheless */
  async nextOrAgain(): Promise<Received | undefined> {
    for (let repeats = 0; ; repeats++) {
      const packet = await this.next(REPEAT_AFTER);
      // a NAK may be late instead: that is what other checks look at
      if (packet !== undefined && repeats > 0 && !isNak(packet)) this.record.repeated();
      if (packet !== undefined || repeats === REPEATS) return packet;
      this.repeat();
    }
  }

  /** Waits for an ACK that covers a PSN; ACKs of earlier ones may come before. */
  async acked(psn: number, what: string, first?: Received): Promise<Received> {
    for (let packet = first ?? (await this.answer(what)); ; packet = await this.answer(what)) {
      if (packet.aeth === undefined) this.fail(`${what}: a packet without AETH instead of an ACK`);
      if (packet.aeth.syndrome >>> 5 !== 0) this.fail(`${what}: ${receivedText(packet)} instead of an ACK`);
      if (psnDistance(packet.bth.psn, psn) >= 0) return packet;
    }
  }

  /**
   * Sends requests, the last of which wants an ACK, and waits for it. What is not acknowledged is sent again after a
   * while and after a NAK of a packet that was lost, and after an RNR NAK of a program that has not posted its receive.
   */
  async done(packets: readonly Packet[], what: string): Promise<Received> {
    const first = (packets[0] as Packet).bth.psn;
    const last = (packets.at(-1) as Packet).bth.psn;
    let [from, repeats, waits, hasRepeated] = [0, 0, 0, false];
    this.send(packets);
    for (;;) {
      const answer = await this.next(REPEAT_AFTER);
      // answers to earlier requests, which the path or a repetition has doubled
      if (answer !== undefined && !isNak(answer) && psnDistance(answer.bth.psn, first) < 0) continue;
      const missing = answer?.aeth?.syndrome === Nak.SEQUENCE ? answer.bth.psn : undefined;
      if (missing !== undefined && missing === this.#gap) continue;
      const lost = packets.findIndex(({ bth }) => bth.psn === missing);
      const isNotReady = answer !== undefined && isNak(answer) && (answer.aeth?.syndrome ?? 0) >>> 5 === 1;
      if (isNotReady && waits++ < RNR_TRIES) {
        await new Promise((resolve) => setTimeout(resolve, RNR_WAIT_MS));
        this.send(packets.slice(from));
      } else if (answer === undefined || lost >= 0) {
        // a NAK of a later packet is progress
        if (lost > from) repeats = 0;
        if (repeats++ === REPEATS)
          return this.fail(answer ? `${what}: ${receivedText(answer)} again` : `no answer to ${what}`);
        from = Math.max(from, lost);
        hasRepeated = true;
        this.send(packets.slice(from));
      } else {
        if (answer.aeth === undefined) this.fail(`${what}: a packet without AETH instead of an ACK`);
        if (answer.aeth.syndrome >>> 5 !== 0) this.fail(`${what}: ${receivedText(answer)} instead of an ACK`);
        if (psnDistance(answer.bth.psn, last) < 0) {
          from = packets.findIndex(({ bth }) => psnDistance(bth.psn, answer.bth.psn) > 0);
          continue;
        }
        if (hasRepeated) this.record.repeated();
        return answer;
      }
    }
  }

  /** Waits for a NAK of a kind; ACKs of earlier requests may come before. `known` names deviations by NAK codes. */
  async refused(code: Nak, what: string, known: Readonly<Record<number, string>> = {}): Promise<Received> {
    for (;;) {
      const packet = await this.nextOrAgain();
      if (packet === undefined) return this.fail(`${what}: no answer instead of a NAK ${Nak[code]}`);
      const { aeth, bth } = packet;
      if (!isNak(packet) && psnDistance(bth.psn, psnAfter(this.psn, -1)) < 0) continue;
      if (aeth === undefined) return this.fail(`${what}: carried out instead of refused`);
      if (aeth.syndrome === code) {
        if (code === Nak.SEQUENCE) this.#gap = bth.psn;
        return packet;
      }
      const name = known[aeth.syndrome];
      if (name !== undefined) this.deviates(name, `${what}: ${receivedText(packet)}`);
      this.fail(`${what}: ${receivedText(packet)} instead of a NAK ${Nak[code]}`);
    }
  }

  /** Waits for any NAK of a PSN that ends the connection; answers to earlier requests may come before. */
  async fatal(what: string, psn = psnAfter(this.psn, -1)): Promise<void> {
    for (;;) {
      const packet = (await this.nextOrAgain()) ?? this.fail(`${what}: no answer instead of a NAK`);
      const { aeth, bth } = packet;
      if (aeth !== undefined && aeth.syndrome >>> 5 === 3 && aeth.syndrome !== Nak.SEQUENCE) return;
      if (isNak(packet) || psnDistance(bth.psn, psn) >= 0)
        this.fail(`${what}: ${receivedText(packet)} instead of a NAK`);
    }
  }

  /** The peer still answers: a WRITE of 8 bytes is acknowledged, or another request is answered. */
  async alive(after: string): Promise<void> {
    if (this.permits('WRITE')) await this.done(this.write(pattern(8, 9), ALIVE_AT), `a WRITE after ${after}`);
    else await this.done([this.request()], `a request after ${after}`);
  }

  /** READs the peer's memory. What does not come is requested again from there on, as a requester does. */
  async read(offset: number, length: number, from: PeerRegion = this.region): Promise<Uint8Array> {
    const packets = Math.max(1, Math.ceil(length / this.mtu));
    const psn = this.take(packets);
    const { va, rkey } = from;
    const pieces: Received[] = [];
    let [hasRepeated, stalled] = [false, 0];
    for (;;) {
      const before = pieces.length;
      const skipped = missingOf(pieces, psn, packets) * this.mtu;
      const at = { psn: psnAfter(psn, skipped / this.mtu), va: va + BigInt(offset + skipped), rkey };
      this.send(request.read({ ...at, length: length - skipped, ackReq: true }));
      if (await this.#pieces(pieces, packets, psn)) break;
      hasRepeated = true;
      stalled = pieces.length > before ? 0 : stalled + 1;
      if (stalled <= REPEATS) continue;
      // fewer packets than the READ has are for the check to judge
      if (pieces.length > 0) break;
      this.fail('no answer to a READ');
    }
    if (hasRepeated) this.record.repeated();
    pieces.sort((a, b) => psnDistance(a.bth.psn, b.bth.psn));
    return Uint8Array.from(pieces.flatMap(({ payload }) => [...payload]));
  }

  /** Receives responses to a READ. @returns false when some of them do not come */
  async #pieces(pieces: Received[], packets: number, psn: number): Promise<boolean> {
    let hasEnd = false;
    while (pieces.length < packets) {
      // a packet may overtake others; one that is missing behind the last one does not come
      const packet: Received | undefined = await this.next(hasEnd ? OVERTAKEN : REPEAT_AFTER);
      if (packet === undefined) return false;
      const isEarlier = !isNak(packet) && psnDistance(packet.bth.psn, psn) < 0;
      if (isAck(packet) || isEarlier) continue;
      // the READ was lost, or a packet before it: it is sent again
      if (packet.aeth?.syndrome === Nak.SEQUENCE) return false;
      const opcode: number = packet.bth.opcode;
      if (opcode < Op.RDMA_READ_RESPONSE_FIRST || opcode > Op.RDMA_READ_RESPONSE_ONLY)
        this.fail(`a READ: ${receivedText(packet)} instead of the data`);
      if (!pieces.some((piece) => isCopy(piece, packet))) pieces.push(packet);
      hasEnd ||= opcode >= Op.RDMA_READ_RESPONSE_LAST;
    }
    return true;
  }

  /** Fails unless the peer's memory holds these bytes. The result says so if the peer does not permit to look. */
  async holds(offset: number, bytes: Uint8Array, otherwise: string): Promise<void> {
    const found = await this.#look(offset, bytes.length);
    if (found !== undefined && !isSame(found, bytes)) this.fail(otherwise);
  }

  /**
   * Fails when a request was carried out, as the peer's memory shows.
   * @param before the bytes of memory before
   * @param after its bytes when the request was carried out
   */
  async unchanged(offset: number, before: Uint8Array, after: Uint8Array, what: string): Promise<void> {
    const found = await this.#look(offset, before.length);
    if (found === undefined || isSame(found, before)) return;
    if (isSame(found, after)) this.fail(`${what} was carried out`);
    this.fail(`after ${what} memory holds ${bytesHex(found)} instead of ${bytesHex(before)}, which nobody has written`);
  }

  /** READs memory, where the peer permits to change it and to look. */
  async #look(offset: number, length: number): Promise<Uint8Array | undefined> {
    if (this.permits('READ') && this.permits('WRITE')) return await this.read(offset, length);
    this.note('memory was not looked at: the peer does not permit to WRITE and to READ it');
    return undefined;
  }
}
