/**
 * A port whose peer is a server of rping. A round of it is a READ, a SEND, a WRITE and a SEND, one after the other. The
 * port plays rounds until a message of the kind comes that a check has asked for, and answers the others itself.
 */
import type { Background, PeerRegion, Traffic, TrafficRequest } from '../checks/target.js';
import { decodeRoce } from '../packet/decode.js';
import type { Decoded } from '../packet/frame.js';
import { Op } from '../packet/opcodes.js';
import { ack, encodeFrame, response } from '../packet/packets.js';
import type { Arrival } from '../script/port.js';
import { PortWrapper } from './portwrapper.js';
import type { SendingPort } from './sendingport.js';

/** The steps of the server in a round. Before the READ and the WRITE it gets the address. */
const STEPS = ['READ', 'SEND', 'WRITE', 'SEND'] as const;
/** Messages that were answered here and may come again. */
const MAX_SPANS = 1024;
/** The bytes of pings: letters, and a NUL at the end, up to which the server WRITEs. */
const LETTER = 65;

/** Options of the port. */
export interface PingOptions {
  /** The PSN of the server's first request. */
  readonly psn: number;
  /** Memory of ours that the server is told of. */
  readonly region: PeerRegion;
  /** The most bytes that the server takes. */
  readonly size: number;
  /** Returns the message that tells the server of memory. */
  encode(memory: { readonly addr: bigint; readonly rkey: number; readonly length: number }): Uint8Array;
}

/** Gives a check the messages that it has asked for. */
export class PingPort extends PortWrapper<SendingPort> implements Background {
  /** Messages that were answered here. */
  count = 0;
  /** All messages that have arrived. */
  #messages = 0;
  #step = 0;
  #expected: number;
  /** The server waits for what the next step needs. */
  #isIdle = true;
  /** The message that arrives is not complete. */
  #isInside = false;
  #isOurs = false;
  /** Bytes of the ping in this round; 0 if the check has sent it. */
  #bytes = 0;
  readonly #wanted: { readonly opcode: Traffic; readonly length: number; left: number }[] = [];
  /** The messages that were answered here: their first PSN, and the one behind them. */
  readonly #spans: { readonly psn: number; end: number }[] = [];

  constructor(
    /** The port of the queue pair. */
    inner: SendingPort,
    /** Options of the game. */
    readonly options: PingOptions,
  ) {
    super(inner);
    this.#expected = options.psn;
  }

  /** Asks the server for messages. A SEND has always the same length. @returns the time */
  request({ opcode, length, count }: TrafficRequest): number {
    this.#wanted.push({ opcode, length: Math.max(1, Math.min(length, this.options.size)), left: count });
    this.#play();
    return this.now();
  }

  behind(psn: number): number {
    let found = psn;
    const whole = this.#isInside && this.#isOurs ? this.#spans.slice(0, -1) : this.#spans;
    for (const { psn: start, end } of whole) if (start === found) found = end;
    return found;
  }

  override send(bytes: Uint8Array): number {
    const at = this.inner.send(bytes);
    const packet = decodeRoce(bytes);
    if (packet?.bth.opcode !== Op.ACKNOWLEDGE || packet.bth.psn !== ((this.#expected - 1) & 0xffffff)) return at;
    if (packet.aeth !== undefined && packet.aeth.syndrome >>> 5 === 0) this.#rest();
    return at;
  }

  async receive(until: number): Promise<Arrival | undefined> {
    for (;;) {
      const arrival = await this.inner.receive(until);
      if (arrival === undefined) return undefined;
      const packet = decodeRoce(arrival.frame);
      if (packet === undefined || !this.#take(packet)) return arrival;
    }
  }

  /** Takes a packet that no check has asked for. @returns false for any other one */
  #take(packet: Decoded): boolean {
    const { opcode, psn } = packet.bth;
    const kind = kindOf(opcode);
    if (kind === undefined) return false;
    if (psn !== this.#expected) {
      const isOld = this.#spans.some(({ psn: start, end }) => isBefore(psn, end) && !isBefore(psn, start));
      if (isOld) this.#answer(packet);
      return isOld;
    }
    if (!this.#isInside && !this.#begin(kind, psn, packet.reth?.length ?? 0)) return false;
    const span = kind === 'READ' ? Math.max(1, Math.ceil((packet.reth?.length ?? 0) / this.mtu)) : 1;
    this.#expected = (psn + span) & 0xffffff;
    this.#isInside = !ENDS.has(opcode);
    if (!this.#isInside) this.#messages++;
    const isOurs = this.#isOurs;
    if (isOurs) this.#count(packet);
    if (!this.#isInside) this.#step = (this.#step + 1) % STEPS.length;
    if (isOurs && !this.#isInside && kind === 'SEND') this.#rest();
    return isOurs;
  }

  /** A message begins. @returns false if it is none of the round */
  #begin(kind: Traffic, psn: number, length: number): boolean {
    if (kind !== STEPS[this.#step]) return false;
    const [wanted] = this.#wanted;
    // a WRITE has as many bytes as the READ before it, if those are ours
    this.#isOurs = wanted?.opcode !== kind || (kind === 'WRITE' && this.#bytes !== wanted.length);
    if (kind === 'READ') this.#bytes = this.#isOurs ? length : 0;
    if (this.#isOurs) {
      this.#spans.push({ psn, end: psn });
      if (this.#spans.length > MAX_SPANS) this.#spans.shift();
    } else if (wanted !== undefined && --wanted.left <= 0) this.#wanted.shift();
    return true;
  }

  /** A packet of ours that has not come before. */
  #count(packet: Decoded): void {
    const span = this.#spans.at(-1);
    if (span !== undefined) span.end = this.#expected;
    if (!this.#isInside) this.count++;
    this.#answer(packet);
  }

  #answer({ bth: { opcode, psn, ackReq }, reth }: Decoded): void {
    const msn = this.#messages & 0xffffff;
    if (opcode !== Op.RDMA_READ_REQUEST) {
      if (ackReq || ENDS.has(opcode)) this.#say([ack({ psn, msn })]);
      return;
    }
    const { va = 0n, length = 0 } = reth ?? {};
    const payload = new Uint8Array(length).fill(LETTER);
    if (va + BigInt(length) === this.options.region.va + BigInt(this.#bytes)) payload[length - 1] = 0;
    this.#say(response.read({ psn, payload, mtu: this.mtu, msn }));
  }

  #say(packets: Parameters<typeof encodeFrame>[1][]): void {
    for (const packet of packets) this.inner.send(encodeFrame(this.flow, packet));
  }

  /** The last SEND of the server is acknowledged. */
  #rest(): void {
    if (this.#isInside || STEPS[this.#step] === 'SEND') return;
    this.#isIdle = true;
    this.#play();
  }

  /** Tells the server where to READ or WRITE, if there is something to wait for. */
  #play(): void {
    const [wanted] = this.#wanted;
    if (!this.#isIdle || wanted === undefined) return;
    this.#isIdle = false;
    const { region, encode } = this.options;
    this.inner.message(encode({ addr: region.va, rkey: region.rkey, length: wanted.length }));
  }
}

/** Packets that end a message. */
const ENDS = new Set<number>([
  Op.SEND_LAST,
  Op.SEND_ONLY,
  Op.RDMA_WRITE_LAST,
  Op.RDMA_WRITE_ONLY,
  Op.RDMA_READ_REQUEST,
]);

/** Returns the kind of a request packet of a server, or undefined. */
function kindOf(opcode: number): Traffic | undefined {
  if (opcode === Op.RDMA_READ_REQUEST) return 'READ';
  if (opcode >= Op.SEND_FIRST && opcode <= Op.SEND_ONLY_WITH_IMM) return 'SEND';
  return opcode >= Op.RDMA_WRITE_FIRST && opcode <= Op.RDMA_WRITE_ONLY_WITH_IMM ? 'WRITE' : undefined;
}

const isBefore = (a: number, b: number) => ((a - b) << 8) >> 8 < 0;
