/**
 * The base of all conversations of checks with a peer: they send packets, receive the peer's, and keep both as
 * evidence.
 */
import { decode, isRoce } from '../packet/decode.js';
import type { Decoded, Frame } from '../packet/frame.js';
import { CNP, Op } from '../packet/opcodes.js';
import { encodeFrame, type Flow, type Packet } from '../packet/packets.js';
import { psnDistance } from '../packet/psn.js';
import type { PacketPort } from '../script/port.js';
import type { CheckBase, Deviation } from './checkbase.js';
import { CheckRecord } from './record.js';
import type { Evidence, Verdict } from './result.js';
import type { Target } from './target.js';

/** Nanoseconds of a millisecond. */
const MS = 1e6;
/** Time in which a peer answers. Hardware needs microseconds, a busy host some milliseconds. */
const PATIENCE = 500 * MS;
/** Time without an answer after which a peer is held to be silent. */
const SILENCE = 50 * MS;

/** A packet of the peer. */
export type Received = Decoded & {
  /** When it arrived, in nanoseconds of the port's clock. */
  readonly at: number;
};

/** Ends a check with a verdict. */
export class CheckEnd extends Error {
  constructor(
    /** Verdict of the check. */
    readonly verdict: Verdict,
    message: string,
    /** The known deviation, if that is the verdict. */
    readonly deviation?: Deviation,
  ) {
    super(message);
  }
}

/** NAK syndromes of the AETH, and the names that messages use. */
export enum Nak {
  /** The PSN is beyond the expected one. */
  SEQUENCE = 0x60,
  /** The request breaks a rule. */
  INVALID_REQUEST = 0x61,
  /** The key, the rights or the range are wrong. */
  REMOTE_ACCESS = 0x62,
  /** The responder itself has an error. */
  REMOTE_OPERATIONAL = 0x63,
}

/** Returns bytes that differ from those of other seeds, and from page to page. */
export function pattern(length: number, seed: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i++) bytes[i] = (i * 167 + (i >> 8) * 13 + seed * 29 + 1) & 255;
  return bytes;
}

/** Sends packets to one queue pair of the peer and receives its packets. */
export class Conversation {
  /** CNPs that the peer has sent so far. They are no answers: `next` passes them over. */
  readonly cnps: Received[] = [];
  /** When the last packet leaves, which may have to wait for its turn. */
  #left = 0;
  /** Packets that have left since a packet of the peer came. */
  #unanswered: Uint8Array[] = [];

  constructor(
    /** The check. */
    readonly check: CheckBase,
    /** The port of the packets. */
    readonly port: PacketPort,
    /** The source of more queue pairs. */
    readonly target: Target,
    /** The record that all conversations of the check share. */
    readonly record: CheckRecord = new CheckRecord(check),
  ) {}

  /** The packets so far. */
  get evidence(): readonly Evidence[] {
    return this.record.evidence;
  }

  /** Payload bytes of a full packet. */
  get mtu(): number {
    return this.port.mtu;
  }

  /** The peer breaks the specification. @throws CheckEnd */
  fail(text: string): never {
    throw new CheckEnd('fails', text);
  }

  /** The peer does what `known` of the check has under this name. @throws CheckEnd */
  deviates(name: string, text: string): never {
    throw new CheckEnd('deviates', text, this.check.known?.[name]);
  }

  /** The check says nothing about this peer. @throws CheckEnd */
  notApplicable(why: string): never {
    throw new CheckEnd('not applicable', why);
  }

  /** Says what was not looked at; a result that passes tells it. */
  note(text: string): void {
    this.record.notes.add(text);
  }

  /** Keeps a measured value, in nanoseconds or a count, under a name. */
  measure(name: string, value: number): void {
    const { measurements } = this.record;
    measurements[name] ??= [];
    measurements[name].push(value);
  }

  /** Sends packets. @returns when the last one left */
  send(packets: Packet | readonly Packet[], there: Partial<Flow> = {}, changes: Partial<Frame> = {}): number {
    let at = this.port.now();
    for (const one of [packets].flat() as Packet[])
      at = this.sendFrame(encodeFrame({ ...this.port.flow, ...there }, one, changes));
    return at;
  }

  /** Sends bytes as they are. @returns when they left */
  sendFrame(bytes: Uint8Array): number {
    this.record.end.signal.throwIfAborted();
    const at = this.port.send(bytes);
    this.#left = at;
    this.#unanswered.push(bytes);
    this.record.evidence.push({ at, direction: 'out', frame: bytes });
    return at;
  }

  /**
   * Returns the next packet of the peer, or undefined if none comes in time after the last that was sent. CNPs are
   * passed over, and packets that every receiver drops by a rule.
   */
  async next(within = PATIENCE): Promise<Received | undefined> {
    const until = Math.max(this.port.now(), this.#left) + within;
    for (;;) {
      this.record.end.signal.throwIfAborted();
      const arrival = await this.port.receive(until);
      if (arrival === undefined) return undefined;
      if (!isRoce(arrival.frame)) continue;
      const evidence: Evidence = { at: arrival.at, direction: 'in', frame: arrival.frame };
      this.record.evidence.push(evidence);
      let packet: Received;
      try {
        packet = { ...decode(arrival.frame), at: arrival.at };
      } catch {
        continue; // not for the receiver of packets to judge
      }
      if (this.record.drops(packet, this.port, evidence)) continue;
      if (packet.bth.opcode !== CNP) {
        this.#unanswered = [];
        return packet;
      }
      this.cnps.push(packet);
    }
  }

  /** Sends again what has left since a packet of the peer came, as a requester does by its timer. */
  protected repeat(): void {
    for (const bytes of this.#unanswered.splice(0)) this.sendFrame(bytes);
  }

  /** Gives up what has no answer: it is not sent again. */
  abandon(): void {
    this.#unanswered = [];
  }

  /** The next packet. Fails when none comes. */
  async answer(to: string, within = PATIENCE): Promise<Received> {
    return (await this.next(within)) ?? this.fail(`no answer to ${to}`);
  }

  /**
   * Waits, and fails when the peer says something other than a CNP.
   * @param from the PSN from which on an ACK answers what was sent; one of an earlier request is none. Absent: any
   */
  async silent(after: string, from?: number): Promise<void> {
    const until = this.port.now() + SILENCE;
    for (;;) {
      const packet = await this.next(Math.max(0, until - this.port.now()));
      if (packet === undefined) return;
      const isEarlier = from !== undefined && isAck(packet) && psnDistance(packet.bth.psn, from) < 0;
      if (!isEarlier) this.fail(`${after}: ${receivedText(packet)} instead of silence`);
    }
  }
}

/** Returns whether two arrays hold the same bytes. */
export const isSame = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && a.every((byte, i) => byte === b[i]);

/** Returns whether a packet is an ACK, and no NAK. */
export const isAck = ({ aeth, bth }: Received): boolean =>
  bth.opcode === Op.ACKNOWLEDGE && aeth !== undefined && aeth.syndrome >>> 5 === 0;

/** Returns whether a packet is a NAK or an RNR NAK. */
export const isNak = ({ aeth, bth }: Received): boolean =>
  bth.opcode === Op.ACKNOWLEDGE && aeth !== undefined && aeth.syndrome >>> 5 !== 0;

/** Returns a packet of the peer as text. */
export function receivedText(packet: Received): string {
  const { aeth, bth } = packet;
  if (aeth === undefined) return `${Op[bth.opcode] ?? `opcode 0x${bth.opcode.toString(16)}`} of PSN ${bth.psn}`;
  const { syndrome } = aeth;
  const kind = syndrome >>> 5;
  if (kind === 0) return `ACK of PSN ${bth.psn}`;
  if (kind === 1) return `RNR NAK of PSN ${bth.psn}`;
  return `NAK ${Nak[syndrome] ?? `0x${syndrome.toString(16)}`} of PSN ${bth.psn}`;
}
