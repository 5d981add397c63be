/** A port whose peer also sends messages, which are no part of what a script or check is about. */
import { decode, isRoce } from '../packet/decode.js';
import type { Decoded } from '../packet/frame.js';
import { Op } from '../packet/opcodes.js';
import { ack, encodeFrame } from '../packet/packets.js';
import type { Arrival, PacketPort } from '../script/port.js';
import { PortWrapper } from './portwrapper.js';

/** The most bytes of messages that are kept until they are read; what is beyond them is acknowledged and lost. */
const MAX_KEPT = 2 ** 20;

/** Acknowledges the SENDs of the peer and keeps their messages; passes everything else on. */
export class ReceivingPort extends PortWrapper {
  /** Messages of the peer, the oldest first. */
  readonly messages: Uint8Array[] = [];
  #pieces: Uint8Array[] = [];
  #kept = 0;
  #msn = 0;

  constructor(
    /** The port of the queue pair. */
    inner: PacketPort,
    /** The PSN of the peer's first request. */
    private expected: number,
  ) {
    super(inner);
  }

  async receive(until: number): Promise<Arrival | undefined> {
    for (;;) {
      const arrival = await this.inner.receive(until);
      if (arrival === undefined || !this.#take(arrival)) return arrival;
    }
  }

  /** Waits for the next message, and gives up what else arrives before it. @returns undefined if none comes in time */
  async message(until: number): Promise<Uint8Array | undefined> {
    while (this.messages.length === 0) {
      const arrival = await this.inner.receive(until);
      if (arrival === undefined) return undefined;
      this.#take(arrival);
    }
    return this.messages.shift();
  }

  /** Takes a packet of a message. @returns false for any other frame */
  #take({ frame: bytes }: Arrival): boolean {
    if (!isRoce(bytes)) return false;
    let packet: Decoded;
    try {
      packet = decode(bytes);
    } catch {
      return false;
    }
    const { opcode, psn, ackReq } = packet.bth;
    if (!SENDS.has(opcode)) return false;
    if (psn === this.expected) this.#add(packet);
    // one that was acknowledged before is acknowledged again; beyond a gap the peer's timer helps
    const isKnown = ((this.expected - psn - 1) & 0xffffff) < 0x800000;
    if (isKnown && (ackReq || ENDS.has(opcode)))
      this.inner.send(encodeFrame(this.inner.flow, ack({ psn: (this.expected - 1) & 0xffffff, msn: this.#msn })));
    return true;
  }

  #add({ bth: { opcode }, payload }: Decoded): void {
    this.expected = (this.expected + 1) & 0xffffff;
    if (this.#kept + payload.length <= MAX_KEPT) {
      this.#pieces.push(payload);
      this.#kept += payload.length;
    }
    if (!ENDS.has(opcode)) return;
    this.#msn = (this.#msn + 1) & 0xffffff;
    this.messages.push(Uint8Array.from(this.#pieces.flatMap((piece) => [...piece])));
    this.#pieces = [];
  }
}

/** Packets that end a message. */
const ENDS = new Set<number>([
  Op.SEND_LAST,
  Op.SEND_LAST_WITH_IMM,
  Op.SEND_LAST_WITH_INVALIDATE,
  Op.SEND_ONLY,
  Op.SEND_ONLY_WITH_IMM,
  Op.SEND_ONLY_WITH_INVALIDATE,
]);
/** Packets of messages. */
const SENDS = new Set<number>([Op.SEND_FIRST, Op.SEND_MIDDLE, ...ENDS]);
