/** A packet as the ladder shows it: its kind, and its contents in a line. */
import type { CapturedRoce } from '../capture/roce.js';
import { decodeMad, MAD_BYTES, type Mad, madText } from '../packet/mad.js';
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

/** Marks of a packet besides its contents; a bit each in `LadderPacket.marks`. */
export const MARKS = {
  /** A request that was sent before. */
  retransmission: 1,
  /** A request before which the capture lacks others. */
  gap: 2,
  /** A NAK. */
  nak: 4,
  /** An RNR NAK. */
  rnr: 8,
  /** A congestion notification packet. */
  cnp: 16,
  /** A packet that a switch has marked (ECN CE). */
  congestion: 32,
  /** A packet with a wrong ICRC. */
  icrc: 64,
  /** A response that was given before. */
  duplicate: 128,
  /** A request that was overtaken. */
  reordered: 256,
  /** A packet that does not arrive. */
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
  /** The purpose of the packet. */
  readonly kind: Kind;
  /** Packet sequence number. */
  readonly psn: number;
  /** Bytes of payload on the wire. */
  readonly bytes: number;
  /** The bits of MARKS. */
  readonly marks: number;
  /** The operation, PSN and lengths, in a line. */
  readonly label: string;
  /** The unusual properties of the packet, in sentences. */
  readonly note: string;
  /** Layers around the packet, from the outside, as text: Ethernet, tags, tunnels. */
  readonly outer: string;
  /** The packet from its IP header to its payload. */
  readonly headers: Uint8Array;
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

export const isResponse = (opcode: number): boolean =>
  opcode < UC && opcode >= Op.RDMA_READ_RESPONSE_FIRST && opcode <= Op.ATOMIC_ACKNOWLEDGE;

/** Whether the PSN of a packet counts: not that of a datagram, nor of a congestion notification. */
export const isSequenced = ({ bth }: CapturedRoce): boolean => bth.destQp !== 1 && bth.opcode < UD_SEND_ONLY;

/** Bytes of a management datagram that have all that is shown of a message. */
const MAD_SHOWN_BYTES = 72;

/** Returns the message of a management datagram. Of one that is cut, the fields that are cut are zero. */
export function madOf({ bth, payload, payloadBytes }: CapturedRoce): Mad | undefined {
  if (bth.destQp !== 1 || payloadBytes !== MAD_BYTES || payload.length < MAD_SHOWN_BYTES) return undefined;
  const whole = new Uint8Array(MAD_BYTES);
  whole.set(payload);
  return decodeMad(whole);
}

/** Returns the kind of a packet. */
export function kindOf({ bth: { opcode, destQp }, aeth }: CapturedRoce): Kind {
  if (opcode === CNP) return 'CNP';
  if (destQp === 1) return 'CM';
  if (opcode >= UD_SEND_ONLY) return 'SEND';
  const operation = opcode & 0x1f;
  // of an AETH that is cut it is not known
  if (opcode < UC && operation === Op.ACKNOWLEDGE)
    return (aeth && ({ 0: 'ACK', 1: 'RNR', 3: 'NAK' } as Record<number, Kind>)[aeth.syndrome >>> 5]) || 'other';
  if (isResponse(opcode)) return 'RESPONSE';
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

/** Names of NAKs by their code (IBTA 9.7.5.2.8). */
export const NAK_NAMES = [
  'sequence error',
  'invalid request',
  'remote access error',
  'remote operational error',
  'invalid RD request',
];

/** Returns the operation of a packet, its PSN and its lengths, in a line. */
export function labelOf(packet: CapturedRoce): string {
  const { bth, aeth, reth, payloadBytes } = packet;
  const mad = madOf(packet);
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
    ...(payloadBytes > 0 ? [`${payloadBytes} B`] : []),
    ...(bth.ackReq ? ['ackreq'] : []),
  ];
  return parts.join(', ');
}
