/**
 * The conversation of one check with the peer. It counts PSNs and keeps the packets as evidence. Each method looks at
 * as little as it can, so that one fault of a peer shows in the check that is meant for it, and not in all.
 */
import { Op } from '../packet/opcodes.js';
import { type Packet, request } from '../packet/packets.js';
import { psnAfter, psnDistance } from '../packet/psn.js';
import type { Operation, PeerRegion, Responder, ResponderCheck, ResponderOptions, Target } from './check.js';
import { bytesText, Conversation, Finding, isAck, isSame, Nak, pattern, type Received, told } from './conversation.js';
import type { CheckRecord } from './record.js';

export { Finding, isSame, Nak, pattern, type Received, told } from './conversation.js';

/** All operations, those first that show the most for the least. */
const OPERATIONS: readonly Operation[] = ['WRITE', 'READ', 'ATOMIC', 'SEND'];
/** What a check needs for which any request is good enough. */
export const REQUESTS: ResponderOptions = { receives: false, anyOf: OPERATIONS };
/** What a check needs that sends messages of several packets. */
export const LONG_REQUESTS: ResponderOptions = { receives: false, anyOf: ['WRITE', 'SEND'] };

/** Time in which a packet comes that another one has overtaken (ns). */
const OVERTAKEN = 20e6;

/** Times that a request is sent which meets no receive yet, and the time between them (ms). */
const RNR_TRIES = 20;
const RNR_WAIT_MS = 25;

/** Where the WRITE goes that shows that a peer still works: the last bytes of the least memory that a peer offers. */
const ALIVE_AT = 16384 - 8;

/** Returns whether the path has duplicated a response. */
const isCopy = (a: Received, b: Received): boolean =>
  a.bth.psn === b.bth.psn && a.bth.opcode === b.bth.opcode && isSame(a.payload, b.payload);

/** What a request of any kind may have otherwise. */
export interface RequestOptions {
  /** PSN. Absent: the next one, which is counted. */
  readonly psn?: number;
  /** Remote key. Absent: that of the peer's memory. */
  readonly rkey?: number;
}

/** Sends to one queue pair of the peer and looks at what it answers. */
export class Talk extends Conversation {
  /** The PSN of the next new request. */
  psn: number;
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
  async another(options: ResponderOptions = this.#check.needs): Promise<Talk> {
    const peer = await this.target.responder(options);
    if (typeof peer === 'string') throw new Finding('not reachable', peer);
    return new Talk(this.#check, peer, this.target, this.record);
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

  /** Waits for an ACK that covers a PSN; ACKs of earlier ones may come before. */
  async acked(psn: number, what: string, first?: Received): Promise<Received> {
    for (let packet = first ?? (await this.answer(what)); ; packet = await this.answer(what)) {
      if (packet.aeth === undefined) this.fail(`${what}: a packet without AETH instead of an ACK`);
      if (packet.aeth.syndrome >>> 5 !== 0) this.fail(`${what}: ${told(packet)} instead of an ACK`);
      if (psnDistance(packet.bth.psn, psn) >= 0) return packet;
    }
  }

  /**
   * Sends requests, the last of which wants an ACK, and waits for it. An RNR NAK of a program that has not posted its
   * receive yet has them sent again.
   */
  async done(packets: readonly Packet[], what: string): Promise<Received> {
    const last = (packets.at(-1) as Packet).bth.psn;
    for (let tries = 1; ; tries++) {
      this.send(packets);
      const answer = await this.answer(what);
      const isNotReady = (answer.aeth?.syndrome ?? 0) >>> 5 === 1 && answer.bth.opcode === Op.ACKNOWLEDGE;
      if (!isNotReady || tries === RNR_TRIES) return await this.acked(last, what, answer);
      await new Promise((resolve) => setTimeout(resolve, RNR_WAIT_MS));
    }
  }

  /** Waits for a NAK of a kind; ACKs of earlier requests may come before. `known` names deviations by NAK codes. */
  async refused(code: Nak, what: string, known: Readonly<Record<number, string>> = {}): Promise<Received> {
    for (;;) {
      const packet = await this.next();
      if (packet === undefined) return this.fail(`${what}: no answer instead of a NAK ${Nak[code]}`);
      const { aeth } = packet;
      if (aeth === undefined) return this.fail(`${what}: carried out instead of refused`);
      if (aeth.syndrome === code) return packet;
      const name = known[aeth.syndrome];
      if (name !== undefined) this.deviates(name, `${what}: ${told(packet)}`);
      const isEarlier = aeth.syndrome >>> 5 === 0 && psnDistance(packet.bth.psn, psnAfter(this.psn, -1)) < 0;
      if (!isEarlier) this.fail(`${what}: ${told(packet)} instead of a NAK ${Nak[code]}`);
    }
  }

  /** Waits for any NAK that ends the connection; ACKs of earlier requests may come before. */
  async fatal(what: string): Promise<void> {
    const psn = psnAfter(this.psn, -1);
    for (;;) {
      const packet = (await this.next()) ?? this.fail(`${what}: no answer instead of a NAK`);
      const { aeth, bth } = packet;
      if (aeth !== undefined && aeth.syndrome >>> 5 === 3 && aeth.syndrome !== Nak.SEQUENCE) return;
      if (!isAck(packet) || psnDistance(bth.psn, psn) >= 0) this.fail(`${what}: ${told(packet)} instead of a NAK`);
    }
  }

  /** The peer still answers: a WRITE of 8 bytes is acknowledged, or another request is answered. */
  async alive(after: string): Promise<void> {
    if (this.permits('WRITE')) await this.done(this.write(pattern(8, 9), ALIVE_AT), `a WRITE after ${after}`);
    else await this.done([this.request()], `a request after ${after}`);
  }

  /** READs the peer's memory. */
  async read(offset: number, length: number, from: PeerRegion = this.region): Promise<Uint8Array> {
    const packets = Math.max(1, Math.ceil(length / this.mtu));
    const psn = this.take(packets);
    this.send(request.read({ psn, va: from.va + BigInt(offset), rkey: from.rkey, length, ackReq: true }));
    const pieces: Received[] = [];
    let hasEnd = false;
    while (pieces.length < packets) {
      // a packet may overtake others; one that is missing behind the last one does not come
      const packet: Received | undefined = hasEnd ? await this.next(OVERTAKEN) : await this.answer('a READ');
      if (packet === undefined) break;
      if (isAck(packet)) continue;
      const opcode: number = packet.bth.opcode;
      if (opcode < Op.RDMA_READ_RESPONSE_FIRST || opcode > Op.RDMA_READ_RESPONSE_ONLY)
        this.fail(`a READ: ${told(packet)} instead of the data`);
      if (!pieces.some((piece) => isCopy(piece, packet))) pieces.push(packet);
      hasEnd ||= opcode >= Op.RDMA_READ_RESPONSE_LAST;
    }
    pieces.sort((a, b) => psnDistance(a.bth.psn, b.bth.psn));
    return Uint8Array.from(pieces.flatMap(({ payload }) => [...payload]));
  }

  /** Fails unless the peer's memory holds these bytes. The result says so if the peer does not permit to look. */
  async holds(offset: number, bytes: Uint8Array, otherwise: string): Promise<void> {
    const found = await this.#look(offset, bytes.length);
    if (found !== undefined && !isSame(found, bytes)) this.fail(otherwise);
  }

  /**
   * Fails when a request was carried out, as the peer's memory shows.
   * @param before what memory held
   * @param after what it holds when the request was carried out
   */
  async unchanged(offset: number, before: Uint8Array, after: Uint8Array, what: string): Promise<void> {
    const found = await this.#look(offset, before.length);
    if (found === undefined || isSame(found, before)) return;
    if (isSame(found, after)) this.fail(`${what} was carried out`);
    this.fail(
      `after ${what} memory holds ${bytesText(found)} instead of ${bytesText(before)}, which nobody has written`,
    );
  }

  /** READs memory, where the peer permits to change it and to look. */
  async #look(offset: number, length: number): Promise<Uint8Array | undefined> {
    if (this.permits('READ') && this.permits('WRITE')) return await this.read(offset, length);
    this.note('memory was not looked at: the peer does not permit to WRITE and to READ it');
    return undefined;
  }
}
