/**
 * What a capture of RoCEv2 packets shows: its connections, the kind of each packet, and what went wrong. A capture
 * has no source queue pair numbers, so that the two directions of a connection are found by their PSNs.
 */
import type { CapturedPacket } from '../capture/read.js';
import { decodeRoce } from '../packet/decode.js';
import type { Decoded } from '../packet/frame.js';
import { decodeMad, madText } from '../packet/mad.js';
import { CNP, OPCODES, Op, UC, UD_SEND_ONLY } from '../packet/opcodes.js';

/** Kinds of packets, for colours and filters. */
export const KINDS = [
  'SEND',
  'WRITE',
  'READ',
  'ATOMIC',
  'RESPONSE',
  'ACK',
  'NAK',
  'RNR',
  'CNP',
  'CM',
  'other',
] as const;
/** The kind of a packet. */
export type Kind = (typeof KINDS)[number];

/** What a packet shows besides its contents; a bit each in `LadderPacket.marks`. */
export const MARKS = {
  retransmission: 1,
  gap: 2,
  nak: 4,
  rnr: 8,
  cnp: 16,
  congestion: 32,
  icrc: 64,
  duplicate: 128,
  reordered: 256,
  lost: 512,
} as const;

/** A packet of the ladder. */
export interface LadderPacket {
  /** Number in the capture, from 1. */
  readonly number: number;
  /** Nanoseconds since the first packet of the capture. */
  readonly time: number;
  /** Index of the connection. */
  readonly connection: number;
  /** 0: from the connection's first end to its second. */
  readonly direction: 0 | 1;
  /** What the packet is for. */
  readonly kind: Kind;
  /** Packet sequence number. */
  readonly psn: number;
  /** Bytes of payload. */
  readonly bytes: number;
  /** The bits of MARKS. */
  readonly marks: number;
  /** The operation, PSN and lengths, in a line. */
  readonly label: string;
  /** What is unusual about the packet, in sentences. */
  readonly note: string;
  /** The frame's headers: everything before the payload. */
  readonly headers: Uint8Array;
}

/** The two ends of a connection. */
export interface LadderConnection {
  /** IP addresses of the first and the second end. */
  readonly addresses: readonly [string, string];
  /** Queue pair numbers; undefined for an end to which no packet went. */
  readonly qps: readonly [number | undefined, number | undefined];
  /** Number of packets. */
  readonly packets: number;
  /** Number of packets with marks that mean trouble. */
  readonly troubles: number;
}

/** A capture as a ladder shows it. */
export interface Ladder {
  /** The pairs of queue pairs, in the order of their first packets. */
  readonly connections: readonly LadderConnection[];
  /** The RoCEv2 packets, in the order of the capture. */
  readonly packets: readonly LadderPacket[];
  /** Packets of the capture that are not RoCEv2, or are cut short. */
  readonly skipped: number;
}

/** Marks that mean trouble. */
export const TROUBLE =
  MARKS.retransmission |
  MARKS.gap |
  MARKS.nak |
  MARKS.rnr |
  MARKS.icrc |
  MARKS.duplicate |
  MARKS.reordered |
  MARKS.lost;
const PSNS = 1 << 24;
/** Bytes of a frame that hold its headers at most, with an Ethernet header, a tag, IPv6 and the longest extension. */
const HEADER_BYTES = 18 + 40 + 8 + 12 + 28 + 4;

/** One direction: the packets of one IP address to a queue pair of another. */
interface Way {
  readonly key: string;
  readonly src: string;
  readonly dst: string;
  readonly qp: number;
  readonly packets: { readonly at: number; readonly frame: Decoded; readonly captured: CapturedPacket }[];
  other?: Way;
}

const isResponse = (opcode: number): boolean =>
  opcode < UC && opcode >= Op.RDMA_READ_RESPONSE_FIRST && opcode <= Op.ATOMIC_ACKNOWLEDGE;

/** Returns the distance from one PSN to another, negative if it lies behind. */
export function psnDistance(from: number, to: number): number {
  const distance = (to - from) & (PSNS - 1);
  return distance >= PSNS / 2 ? distance - PSNS : distance;
}

/** Analyses a capture. */
export function analyse(captured: readonly CapturedPacket[]): Ladder {
  const ways = new Map<string, Way>();
  let skipped = 0;
  const start = captured[0]?.time ?? 0n;
  for (const [index, packet] of captured.entries()) {
    const frame = decodeRoce(packet.data);
    if (frame === undefined) {
      skipped++;
      continue;
    }
    const { src, dst } = frame.ip;
    const key = `${src} ${dst} ${frame.bth.destQp}`;
    const way = ways.get(key) ?? { key, src, dst, qp: frame.bth.destQp, packets: [] };
    ways.set(key, way);
    way.packets.push({ at: index, frame, captured: packet });
  }
  pair([...ways.values()]);
  return { ...connect(ways, start), skipped };
}

/** Finds the opposite of each direction: the one whose responses have the PSNs of its requests. */
function pair(ways: readonly Way[]): void {
  const requests = new Map<string, Way[]>();
  for (const way of ways)
    for (const psn of new Set(
      way.packets.filter(({ frame }) => !isResponse(frame.bth.opcode)).map(({ frame }) => frame.bth.psn),
    )) {
      const key = `${way.src} ${way.dst} ${psn}`;
      requests.set(key, [...(requests.get(key) ?? []), way]);
    }
  const scores: { readonly way: Way; readonly other: Way; score: number }[] = [];
  for (const other of ways) {
    const found = new Map<Way, number>();
    for (const { frame } of other.packets)
      if (isResponse(frame.bth.opcode))
        for (const way of requests.get(`${other.dst} ${other.src} ${frame.bth.psn}`) ?? [])
          found.set(way, (found.get(way) ?? 0) + 1);
    for (const [way, score] of found) scores.push({ way, other, score });
  }
  // Queue pair 1 of both ends belong together, whatever their PSNs are.
  for (const way of ways.filter(({ qp }) => qp === 1)) {
    const other = ways.find(({ qp, src, dst }) => qp === 1 && src === way.dst && dst === way.src);
    if (other) join(way, other);
  }
  for (const { way, other } of scores.sort((a, b) => b.score - a.score))
    if (!way.other && !other.other) join(way, other);
  // One direction alone may be a CNP's, or that of a requester whose peer is silent: its address has one candidate.
  for (const way of ways.filter((each) => !each.other)) {
    const candidates = ways.filter((each) => !each.other && each.src === way.dst && each.dst === way.src);
    if (candidates.length === 1) join(way, candidates[0] as Way);
  }
}

function join(way: Way, other: Way): void {
  way.other = other;
  other.other = way;
}

function connect(ways: ReadonlyMap<string, Way>, start: bigint): Omit<Ladder, 'skipped'> {
  const packets: LadderPacket[] = [];
  const connections: LadderConnection[] = [];
  const done = new Set<Way>();
  for (const first of ways.values()) {
    if (done.has(first)) continue;
    const second = first.other;
    done.add(first);
    if (second) done.add(second);
    const both = [
      ...first.packets.map((each) => ({ ...each, direction: 0 as const })),
      ...(second?.packets ?? []).map((each) => ({ ...each, direction: 1 as const })),
    ].sort((a, b) => a.at - b.at);
    const follower = new Follower(connections.length, pathMtu(both.map(({ frame }) => frame)));
    let troubles = 0;
    for (const { at, frame, captured, direction } of both) {
      const time = Number(captured.time - start);
      const packet = follower.packet({ number: at + 1, time, direction, frame, data: captured.data });
      if (packet.marks & TROUBLE) troubles++;
      packets.push(packet);
    }
    connections.push({
      addresses: [first.src, first.dst],
      qps: [second?.qp, first.qp],
      ...{ packets: both.length, troubles },
    });
  }
  packets.sort((a, b) => a.number - b.number);
  return { connections, packets };
}

function kindOf({ bth: { opcode, destQp }, aeth }: Decoded): Kind {
  if (opcode === CNP) return 'CNP';
  if (destQp === 1) return 'CM';
  if (opcode >= UD_SEND_ONLY) return 'SEND';
  const operation = opcode & 0x1f;
  if (opcode < UC && operation === Op.ACKNOWLEDGE)
    return ({ 0: 'ACK', 1: 'RNR', 3: 'NAK' } as Record<number, Kind>)[(aeth?.syndrome ?? 0) >>> 5] ?? 'other';
  if (opcode < UC && isResponse(opcode)) return 'RESPONSE';
  if (
    operation <= Op.SEND_ONLY_WITH_IMM ||
    operation === Op.SEND_LAST_WITH_INVALIDATE ||
    operation === Op.SEND_ONLY_WITH_INVALIDATE
  )
    return 'SEND';
  if (operation <= Op.RDMA_WRITE_ONLY_WITH_IMM || operation === Op.ATOMIC_WRITE) return 'WRITE';
  if (operation === Op.RDMA_READ_REQUEST) return 'READ';
  return operation === Op.COMPARE_SWAP || operation === Op.FETCH_ADD ? 'ATOMIC' : 'other';
}

const NAK_NAMES = [
  'sequence error',
  'invalid request',
  'remote access error',
  'remote operational error',
  'invalid RD request',
];

function labelOf({ bth, aeth, reth, payload }: Decoded): string {
  const mad = bth.destQp === 1 ? decodeMad(payload) : undefined;
  if (mad !== undefined) return madText(mad);
  const name = (OPCODES.get(bth.opcode)?.name ?? `opcode 0x${bth.opcode.toString(16)}`)
    .replace(/^RC /, '')
    .replace('RDMA_', '');
  const code = (aeth?.syndrome ?? 0) & 31;
  const answer =
    aeth === undefined || bth.opcode !== Op.ACKNOWLEDGE
      ? name
      : ['ACK', `RNR NAK, timer ${code}`, '', `NAK: ${NAK_NAMES[code] ?? `code ${code}`}`][aeth.syndrome >>> 5] || name;
  const parts = [
    answer,
    ...(bth.opcode === CNP ? [] : [`psn ${bth.psn}`]),
    ...(reth && bth.opcode === Op.RDMA_READ_REQUEST ? [`asks for ${reth.length} B`] : []),
    ...(aeth ? [`msn ${aeth.msn}`] : []),
    ...(payload.length > 0 ? [`${payload.length} B`] : []),
    ...(bth.ackReq ? ['ackreq'] : []),
  ];
  return parts.join(', ');
}

/** What was seen of the requests of one end. */
interface Requests {
  /** The PSN after the highest one. */
  next: number | undefined;
  /** When each PSN of the recent past was first seen. */
  readonly seen: Map<number, number>;
  /** The peer's last NAK or RNR NAK, and when it was seen. */
  refusal: { readonly text: string; readonly time: number } | undefined;
  /** The peer's highest response. */
  response: number | undefined;
}

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
  /** The frame, decoded. */
  readonly frame: Decoded;
  /** The frame from its first byte, as far as it was captured. */
  readonly data: Uint8Array;
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
  packet({ number, time, direction, frame, data, isLost = false }: FollowedPacket): LadderPacket {
    const { marks, note } = this.#look(frame, direction, time);
    return {
      ...{ number, time, connection: this.connection, direction, kind: kindOf(frame), psn: frame.bth.psn },
      ...{ bytes: frame.payload.length, label: labelOf(frame) },
      marks: isLost ? marks | MARKS.lost : marks,
      note: isLost ? `The network loses this packet. ${note}`.trim() : note,
      headers: data.subarray(0, Math.min(HEADER_BYTES, data.length)),
    };
  }

  #look(frame: Decoded, direction: 0 | 1, time: number): { marks: number; note: string } {
    const { bth, aeth, ip } = frame;
    const notes: string[] = [];
    let marks = 0;
    const mark = (bit: number, text: string) => {
      marks |= bit;
      notes.push(text);
    };
    if (!frame.icrcOk) mark(MARKS.icrc, 'The ICRC is wrong.');
    if (((ip.version === 4 ? ip.tos : ip.trafficClass) & 3) === 3)
      mark(MARKS.congestion, 'A switch has marked congestion (ECN CE).');
    if (bth.opcode === CNP) mark(MARKS.cnp, 'Congestion notification: the receiver asks for a lower rate.');
    const isConnected = bth.destQp !== 1 && bth.opcode < UD_SEND_ONLY;
    if (isConnected && bth.opcode < UC && isResponse(bth.opcode)) this.#answer(frame, direction, time, mark);
    else if (isConnected) this.#request(frame, direction, time, mark);
    if (aeth !== undefined && bth.opcode === Op.ACKNOWLEDGE) {
      const { refusal } = this.#ends[direction === 0 ? 1 : 0];
      if (refusal?.time === time) marks |= aeth.syndrome >>> 5 === 1 ? MARKS.rnr : MARKS.nak;
    }
    return { marks, note: notes.join(' ') };
  }

  #request({ bth, reth }: Decoded, direction: 0 | 1, time: number, mark: (bit: number, text: string) => void): void {
    const end = this.#ends[direction];
    const { psn } = bth;
    const first = end.seen.get(psn);
    const distance = end.next === undefined ? 0 : psnDistance(end.next, psn);
    if (distance < 0 && first !== undefined)
      mark(
        MARKS.retransmission,
        `Retransmission: this PSN was sent ${ago(time - first)} before${this.#why(end, time)}.`,
      );
    else if (distance < 0 && bth.opcode === Op.RDMA_READ_REQUEST)
      mark(MARKS.retransmission, `A READ request asks again from the middle of an earlier one${this.#why(end, time)}.`);
    else if (distance < 0) mark(MARKS.reordered, `The packet arrives ${-distance} PSNs late: it was overtaken.`);
    else if (distance > 0)
      mark(
        MARKS.gap,
        `Gap: the capture lacks ${distance} PSN${distance === 1 ? '' : 's'} before this packet, from ${end.next}.`,
      );
    remember(end.seen, psn, time);
    if (distance >= 0) end.next = this.#after(psn, bth.opcode === Op.RDMA_READ_REQUEST ? (reth?.length ?? 0) : 0);
  }

  /** Returns the PSN after a request. A READ takes as many as its response has packets: unknown without a path MTU. */
  #after(psn: number, readBytes: number): number | undefined {
    if (readBytes > 0 && this.mtu === 0) return undefined;
    return (psn + (readBytes > 0 ? Math.ceil(readBytes / this.mtu) : 1)) & (PSNS - 1);
  }

  #answer({ bth, aeth }: Decoded, direction: 0 | 1, time: number, mark: (bit: number, text: string) => void): void {
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
      requester.refusal = { text, time };
      return;
    }
    if (requester.response !== undefined && psnDistance(requester.response, psn) < 0)
      mark(MARKS.duplicate, 'An answer that was given before, or that was overtaken.');
    else requester.response = psn;
  }

  /** Why a requester sends again: the refusal just before, or else its timer. */
  #why({ refusal }: Requests, time: number): string {
    return refusal === undefined || time - refusal.time > 1e9
      ? ', without a NAK: its timer has expired, or it saw a loss'
      : `, ${ago(time - refusal.time)} after a ${refusal.text}`;
  }
}

function newRequests(): Requests {
  return { next: undefined, seen: new Map(), refusal: undefined, response: undefined };
}

/** Returns the path MTU in bytes: the payload of a packet that is not the last of its message; 0 if there is none. */
function pathMtu(frames: readonly Decoded[]): number {
  return frames.reduce((most, { bth, payload }) => (isInner(bth.opcode) ? Math.max(most, payload.length) : most), 0);
}

function isInner(opcode: number): boolean {
  const operation = opcode & 0x1f;
  return [
    ...[Op.SEND_FIRST, Op.SEND_MIDDLE, Op.RDMA_WRITE_FIRST, Op.RDMA_WRITE_MIDDLE],
    ...[Op.RDMA_READ_RESPONSE_FIRST, Op.RDMA_READ_RESPONSE_MIDDLE],
  ].includes(operation);
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
