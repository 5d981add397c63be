/** A port whose script also sends messages to the peer, which are no part of what a script or check is about. */
import { decode, isRoce } from '../packet/decode.js';
import type { Decoded } from '../packet/frame.js';
import { Op } from '../packet/opcodes.js';
import { encodeFrame, request } from '../packet/packets.js';
import type { Arrival, PacketPort } from '../script/port.js';
import { PortWrapper } from './portwrapper.js';

/** Time without an ACK after which messages are sent again (ns). */
const REPEAT_NS = 100e6;
/** Number of times in a row. Then the messages are given up: the peer's queue pair is in the error state. */
const MAX_REPEATS = 20;

/** Sends messages, repeats them until the peer has acknowledged them, and passes on everything but their ACKs. */
export class SendingPort extends PortWrapper {
  /** Packets that are not acknowledged, the oldest first. */
  readonly #waiting: { readonly psn: number; readonly bytes: Uint8Array }[] = [];
  #repeatAt = Number.POSITIVE_INFINITY;
  #repeats = 0;

  constructor(
    /** The port of the queue pair. */
    inner: PacketPort,
    /** The PSN of the next message. */
    private psn: number,
  ) {
    super(inner);
  }

  /** Sends a message (SEND). `receive` repeats it until it is acknowledged. @returns when its last packet left */
  message(payload: Uint8Array): number {
    const packets = request.send({ psn: this.psn, payload, mtu: this.mtu });
    this.psn = (this.psn + packets.length) & 0xffffff;
    let left = 0;
    for (const packet of packets) {
      const bytes = encodeFrame(this.flow, packet);
      this.#waiting.push({ psn: packet.bth.psn, bytes });
      left = this.inner.send(bytes);
    }
    this.#progress();
    return left;
  }

  async receive(until: number): Promise<Arrival | undefined> {
    for (;;) {
      const arrival = await this.inner.receive(Math.min(until, this.#repeatAt));
      if (arrival !== undefined && !this.#take(arrival)) return arrival;
      if (arrival !== undefined) continue;
      if (this.now() >= this.#repeatAt) this.#repeat();
      if (this.now() >= until) return undefined;
    }
  }

  /** Takes an ACK or NAK. @returns false for any other frame */
  #take({ frame: bytes }: Arrival): boolean {
    if (!isRoce(bytes)) return false;
    let packet: Decoded;
    try {
      packet = decode(bytes);
    } catch {
      return false;
    }
    const { bth, aeth } = packet;
    if (bth.opcode !== Op.ACKNOWLEDGE || aeth === undefined) return false;
    const kind = aeth.syndrome >>> 5;
    // a NAK acknowledges what is before its PSN
    const end = kind === 0 ? bth.psn + 1 : bth.psn;
    const before = this.#waiting.length;
    while (this.#waiting[0] !== undefined && ((this.#waiting[0].psn - end) << 8) >> 8 < 0) this.#waiting.shift();
    if (this.#waiting.length < before) this.#progress();
    // all codes but those of a gap and of a missing receive end the connection
    if (kind === 3 && aeth.syndrome !== 0x60) this.#giveUp();
    return true;
  }

  #repeat(): void {
    if (++this.#repeats > MAX_REPEATS) {
      this.#giveUp();
      return;
    }
    for (const { bytes } of this.#waiting) this.inner.send(bytes);
    this.#repeatAt = this.now() + REPEAT_NS;
  }

  #giveUp(): void {
    this.#waiting.length = 0;
    this.#progress();
  }

  #progress(): void {
    this.#repeats = 0;
    this.#repeatAt = this.#waiting.length > 0 ? this.now() + REPEAT_NS : Number.POSITIVE_INFINITY;
  }
}
