/** Follows the packets of one connection, and says what is unusual about each. */
import type { CapturedRoce } from '../capture/roce.js';
import { CNP, Op } from '../packet/opcodes.js';
import { psnAfter, psnDistance } from '../packet/psn.js';
import { isResponse, isSequenced, kindOf, type LadderPacket, labelOf, MARKS, NAK_NAMES } from './packet.js';
import { JUMP } from './ways.js';

/** The requests of one end, as they were seen. */
interface Requests {
  /** The PSN after the highest one. */
  next: number | undefined;
  /** When each PSN of the recent past was first seen. */
  readonly seen: Map<number, number>;
  /** The peer's last NAK or RNR NAK, when it was seen, and the PSN that the peer has not received. */
  refusal: { readonly text: string; readonly time: number; readonly missing: number | undefined } | undefined;
  /** The PSN after the last retransmission, if nothing else has come since. */
  resending: number | undefined;
  /** The peer's highest response. */
  response: number | undefined;
}

/** Adds a bit of MARKS and its sentence. */
type Mark = (bit: number, text: string) => void;

/** PSNs that are remembered of each end. */
const REMEMBERED = 65_536;

/** A packet for `Follower.packet`. */
export interface FollowedPacket {
  /** Number in the capture, from 1. */
  readonly number: number;
  /** Nanoseconds since the first packet of the capture. */
  readonly time: number;
  /** 0: from the connection's first end to its second. */
  readonly direction: 0 | 1;
  /** The packet, decoded. */
  readonly packet: CapturedRoce;
  /** Whether it is known that the packet does not arrive. Default: false. */
  readonly isLost?: boolean;
}

/** Follows one connection, packet by packet. */
export class Follower {
  readonly #ends: readonly [Requests, Requests] = [newRequests(), newRequests()];

  /**
   * @param connection index of the connection in its ladder
   * @param mtu path MTU in bytes, 0 = unknown
   */
  constructor(
    readonly connection: number,
    readonly mtu: number,
  ) {}

  /** Returns the next packet of the connection as the ladder shows it. */
  packet({ number, time, direction, packet, isLost = false }: FollowedPacket): LadderPacket {
    const { marks, note } = this.#look(packet, direction, time);
    const outer = packet.outer.join(' / ');
    return {
      ...{ number, time, connection: this.connection, direction, kind: kindOf(packet), psn: packet.bth.psn },
      ...{ bytes: packet.payloadBytes, label: labelOf(packet), outer, headers: packet.headers },
      marks: isLost ? marks | MARKS.lost : marks,
      note: isLost ? `The network loses this packet. ${note}`.trim() : note,
    };
  }

  #look(packet: CapturedRoce, direction: 0 | 1, time: number): { marks: number; note: string } {
    const { bth, ip } = packet;
    const notes: string[] = [];
    let marks = 0;
    const mark: Mark = (bit, text) => {
      marks |= bit;
      notes.push(text);
    };
    if (packet.tail?.icrcOk === false) mark(MARKS.icrc, 'The ICRC is wrong.');
    if (((ip.version === 4 ? ip.tos : ip.trafficClass) & 3) === 3)
      mark(MARKS.congestion, 'A switch has marked congestion (ECN CE).');
    if (bth.opcode === CNP) mark(MARKS.cnp, 'Congestion notification: the receiver asks for a lower rate.');
    if (isSequenced(packet) && isResponse(bth.opcode)) this.#answer(packet, direction, time, mark);
    else if (isSequenced(packet)) this.#request(packet, direction, time, mark);
    return { marks, note: notes.join(' ') };
  }

  #request(packet: CapturedRoce, direction: 0 | 1, time: number, mark: Mark): void {
    const { bth } = packet;
    const end = this.#ends[direction];
    const { psn } = bth;
    const first = end.seen.get(psn);
    const distance = end.next === undefined ? 0 : psnDistance(psn, end.next);
    if (distance === -1 && isKeepAlive(packet)) {
      mark(0, 'A keep-alive: it repeats the last PSN without bytes, for an ACK.');
      return;
    }
    if (distance < 0 && first !== undefined)
      mark(
        MARKS.retransmission,
        `Retransmission: this PSN was sent ${ago(time - first)} before${this.#why(end, time)}.`,
      );
    else if (distance < 0 && bth.opcode === Op.RDMA_READ_REQUEST)
      mark(MARKS.retransmission, `A READ request asks again from the middle of an earlier one${this.#why(end, time)}.`);
    else if (distance < 0 && (end.refusal?.missing === psn || end.resending === psn))
      mark(
        MARKS.retransmission,
        `Retransmission${this.#why(end, time)}: the capture lacks the first transmission of this PSN.`,
      );
    else if (distance < 0)
      mark(
        MARKS.reordered,
        `The packet arrives ${-distance} PSNs late: it was overtaken, or the capture lacks its first transmission.`,
      );
    else if (distance > 0)
      mark(
        MARKS.gap,
        `Gap: the capture lacks ${distance} PSN${distance === 1 ? '' : 's'} before this packet, from ${end.next}.`,
      );
    remember(end.seen, psn, time);
    const next = this.#after(packet);
    // a single packet from far away tells nothing of the next one
    if (distance >= 0 && distance < JUMP) end.next = next;
    end.resending = distance < 0 ? next : undefined;
  }

  /**
   * Returns the PSN after a request. A READ takes as many as its response has packets: unknown without a path MTU, and
   * if its RETH is cut.
   */
  #after({ bth, reth }: CapturedRoce): number | undefined {
    if (bth.opcode !== Op.RDMA_READ_REQUEST) return psnAfter(bth.psn, 1);
    if (reth?.length === 0) return psnAfter(bth.psn, 1);
    return reth === undefined || this.mtu === 0 ? undefined : psnAfter(bth.psn, Math.ceil(reth.length / this.mtu));
  }

  #answer({ bth, aeth }: CapturedRoce, direction: 0 | 1, time: number, mark: Mark): void {
    const requester = this.#ends[direction === 0 ? 1 : 0];
    const { psn } = bth;
    if (bth.opcode === Op.ACKNOWLEDGE && aeth !== undefined && aeth.syndrome >>> 5 !== 0) {
      const code = aeth.syndrome & 31;
      const isRnr = aeth.syndrome >>> 5 === 1;
      const text = isRnr ? 'RNR NAK' : `NAK (${NAK_NAMES[code] ?? `code ${code}`})`;
      if (isRnr) mark(MARKS.rnr, `Receiver not ready: no receive is posted for PSN ${psn}.`);
      else if (code === 0) mark(MARKS.nak, `The responder misses PSN ${psn}: everything from there is sent again.`);
      else
        mark(
          MARKS.nak,
          `The responder refuses PSN ${psn}: ${NAK_NAMES[code] ?? 'reserved code'}. The connection ends.`,
        );
      requester.refusal = { text, time, missing: !isRnr && code === 0 ? psn : undefined };
      return;
    }
    if (requester.response !== undefined && psnDistance(psn, requester.response) < 0)
      mark(MARKS.duplicate, 'An answer that was given before, or that was overtaken.');
    else requester.response = psn;
  }

  /** The reason of a requester to send again: the refusal just before, or else its timer. */
  #why({ refusal }: Requests, time: number): string {
    return refusal === undefined || time - refusal.time > 1e9
      ? ', without a NAK: its timer has expired, or it saw a loss'
      : `, ${ago(time - refusal.time)} after a ${refusal.text}`;
  }
}

function newRequests(): Requests {
  return { next: undefined, seen: new Map(), refusal: undefined, resending: undefined, response: undefined };
}

function remember(seen: Map<number, number>, psn: number, time: number): void {
  seen.delete(psn);
  seen.set(psn, time);
  if (seen.size > REMEMBERED) seen.delete(seen.keys().next().value as number);
}

/** Returns a time in nanoseconds for people. */
export function ago(ns: number): string {
  const [unit, size] =
    (
      [
        ['s', 1e9],
        ['ms', 1e6],
        ['µs', 1e3],
      ] as const
    ).find(([, each]) => ns >= each) ?? (['ns', 1] as const);
  return `${Number((ns / size).toPrecision(3))} ${unit}`;
}

/** Whether a request asks for a sign of the peer, as our card does. */
function isKeepAlive({ bth, reth }: CapturedRoce): boolean {
  return bth.opcode === Op.RDMA_WRITE_ONLY && reth?.length === 0 && reth.rkey === 0;
}
