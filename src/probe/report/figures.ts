/**
 * Counts of packets by the names of open-traffic-generator (models/result/rocev2flow.yaml, rocev2ipv4.yaml): `tx` is
 * what the check sent, `rx` what the peer sent.
 */
import type { Evidence } from '../checks/result.js';
import { analyse, type Ladder } from '../ladder/analysis.js';
import { type Kind, type LadderPacket, MARKS } from '../ladder/packet.js';
import { decode, decodeRoce } from '../packet/decode.js';
import { OPCODES } from '../packet/opcodes.js';

/** Figures of one pair of queue pairs, with the check as its own end. */
export interface FlowFigures {
  /** Queue pair number of the check's end. Absent: no packet went to it. */
  readonly src_qp?: number;
  /** Queue pair number of the peer's end. Absent: no packet went to it. */
  readonly dest_qp?: number;
  /** IPv4 address of the check's end. Absent: it is IPv6. */
  readonly src_ipv4?: string;
  /** IPv6 address of the check's end. Absent: it is IPv4. */
  readonly src_ipv6?: string;
  /** IPv4 address of the peer's end. Absent: it is IPv6. */
  readonly dest_ipv4?: string;
  /** IPv6 address of the peer's end. Absent: it is IPv4. */
  readonly dest_ipv6?: string;
  /** Requests and READ and atomic responses that the check sent, in packets. */
  readonly data_frames_tx: number;
  /** The same that the peer sent. */
  readonly data_frames_rx: number;
  /** Those of the check that it had sent before. */
  readonly data_frames_retransmitted: number;
  /** Those of the peer with a PSN too high, or overtaken. */
  readonly frame_sequence_error: number;
  /** Bytes of the check's data frames, with Ethernet header, without frame check sequence. */
  readonly tx_bytes: number;
  /** Bytes of the peer's data frames. */
  readonly rx_bytes: number;
  /** Messages whose last packet the check sent, not counting repetitions. */
  readonly message_tx: number;
  /** Messages whose last packet came from the peer, READ and atomic responses among them. */
  readonly message_complete_rx: number;
  /** Refusals that end a connection, of either end. */
  readonly message_fail: number;
  /** Packets of the peer that a switch has marked (ECN CE). */
  readonly ecn_ce_rx: number;
  /** CNPs that the check sent. */
  readonly cnp_tx: number;
  /** CNPs that the peer sent. */
  readonly cnp_rx: number;
  /** ACKs that the check sent. */
  readonly ack_tx: number;
  /** ACKs that the peer sent. */
  readonly ack_rx: number;
  /** NAKs that the check sent, RNR NAKs among them. */
  readonly nak_tx: number;
  /** NAKs that the peer sent, RNR NAKs among them. */
  readonly nak_rx: number;
  /** Nanoseconds from the check's first packet to the first of this flow. */
  readonly first_timestamp: number;
  /** Nanoseconds from the check's first packet to the last of this flow. */
  readonly last_timestamp: number;
}

/** Counts of rdma_cm's messages: `tx` by the check, `rx` by the peer. */
export interface CmFigures {
  /** REQ sent. */
  readonly connect_request_tx: number;
  /** REQ received. */
  readonly connect_request_rx: number;
  /** REP sent. */
  readonly connect_reply_tx: number;
  /** REP received. */
  readonly connect_reply_rx: number;
  /** RTU sent. */
  readonly ready_tx: number;
  /** RTU received. */
  readonly ready_rx: number;
  /** DREQ sent. */
  readonly disconnect_request_tx: number;
  /** DREQ received. */
  readonly disconnect_request_rx: number;
  /** DREP sent. */
  readonly disconnect_reply_tx: number;
  /** DREP received. */
  readonly disconnect_reply_rx: number;
  /** REJ sent. */
  readonly reject_tx: number;
  /** REJ received. */
  readonly reject_rx: number;
  /** Other messages received. */
  readonly unknown_msg_rx: number;
}

const DATA: ReadonlySet<Kind> = new Set(['SEND', 'WRITE', 'READ', 'ATOMIC', 'RESPONSE'] as const);
/** A packet that others of its message follow. */
const INNER = /_(FIRST|MIDDLE)$/;

/** Returns the evidence as a capture. @param epoch nanoseconds since 1970 at the first packet */
export function captured(evidence: readonly Evidence[], epoch = 0n) {
  const start = evidence[0]?.at ?? 0;
  return evidence.map(({ at, direction, frame }) => ({
    time: epoch + BigInt(Math.round(at - start)),
    data: frame,
    wireLength: frame.length,
    direction: direction === 'in' ? (1 as const) : (2 as const),
  }));
}

/** The ladders of evidence that is complete: each of the reports needs them. */
const ladders = new WeakMap<readonly Evidence[], Ladder>();

/** Returns the ladder of a check's packets. */
export function ladderOf(evidence: readonly Evidence[]): Ladder {
  const ladder = ladders.get(evidence) ?? analyse(captured(evidence));
  ladders.set(evidence, ladder);
  return ladder;
}

/** Returns the figures of each pair of queue pairs, in the order of their first packets. */
export function flowFigures(evidence: readonly Evidence[]): FlowFigures[] {
  const { connections, packets } = ladderOf(evidence);
  const isOut = ({ number }: LadderPacket) => evidence[number - 1]?.direction === 'out';
  return connections.flatMap(({ addresses, qps }, index) => {
    const own = packets.filter(({ connection }) => connection === index);
    const [first, last] = [own[0], own.at(-1)];
    // datagrams of rdma_cm are counted by their messages
    if (first === undefined || last === undefined || first.kind === 'CM') return [];
    const near = isOut(first) === (first.direction === 0) ? 0 : 1;
    const far = near === 0 ? 1 : 0;
    const frameOf = ({ number }: LadderPacket) => (evidence[number - 1] as Evidence).frame;
    const count = (packets: readonly LadderPacket[], is: (packet: LadderPacket) => boolean | number) =>
      packets.filter(is).length;
    const [sent, received] = [own.filter(isOut), own.filter((each) => !isOut(each))];
    const isData = ({ kind }: LadderPacket) => DATA.has(kind);
    const bytes = (of: readonly LadderPacket[]) =>
      of.filter(isData).reduce((sum, packet) => sum + frameOf(packet).length, 0);
    const isRepeated = ({ marks }: LadderPacket) => (marks & MARKS.retransmission) !== 0;
    const isWhole = (packet: LadderPacket) =>
      isData(packet) && !isRepeated(packet) && !INNER.test(OPCODES.get(decode(frameOf(packet)).bth.opcode)?.name ?? '');
    const isKind =
      (...kinds: readonly Kind[]) =>
      ({ kind }: LadderPacket) =>
        kinds.includes(kind);
    const isFatal = (packet: LadderPacket) =>
      packet.kind === 'NAK' && ((decode(frameOf(packet)).aeth?.syndrome ?? 0) & 31) !== 0;
    return [
      {
        ...(qps[near] !== undefined && { src_qp: qps[near] }),
        ...(qps[far] !== undefined && { dest_qp: qps[far] }),
        ...(addresses[0].includes(':')
          ? { src_ipv6: addresses[near], dest_ipv6: addresses[far] }
          : { src_ipv4: addresses[near], dest_ipv4: addresses[far] }),
        data_frames_tx: count(sent, isData),
        data_frames_rx: count(received, isData),
        data_frames_retransmitted: count(sent, (each) => isData(each) && isRepeated(each)),
        frame_sequence_error: count(
          received,
          (each) => isData(each) && (each.marks & (MARKS.gap | MARKS.reordered)) !== 0,
        ),
        tx_bytes: bytes(sent),
        rx_bytes: bytes(received),
        message_tx: count(sent, isWhole),
        message_complete_rx: count(received, isWhole),
        message_fail: count(own, isFatal),
        ecn_ce_rx: count(received, ({ marks }) => marks & MARKS.congestion),
        cnp_tx: count(sent, isKind('CNP')),
        cnp_rx: count(received, isKind('CNP')),
        ack_tx: count(sent, isKind('ACK')),
        ack_rx: count(received, isKind('ACK')),
        nak_tx: count(sent, isKind('NAK', 'RNR')),
        nak_rx: count(received, isKind('NAK', 'RNR')),
        first_timestamp: first.time,
        last_timestamp: last.time,
      },
    ];
  });
}

/** The messages of rdma_cm by their attribute IDs (IBTA 12.6). */
const MESSAGES: Readonly<Record<number, string>> = {
  16: 'connect_request',
  18: 'reject',
  19: 'connect_reply',
  20: 'ready',
  21: 'disconnect_request',
  22: 'disconnect_reply',
};
/** The queue pair of rdma_cm. */
const CM_QP = 1;
/** Management class of communication management, and offsets in the header of a management datagram (IBTA 13.4.3). */
const [CM_CLASS, CLASS_AT, ATTRIBUTE_AT] = [7, 1, 16];

/** Returns the counts of rdma_cm's messages. */
export function cmFigures(evidence: readonly Evidence[]): CmFigures {
  const counts: { -readonly [name in keyof CmFigures]: number } = {
    ...{ connect_request_tx: 0, connect_request_rx: 0, connect_reply_tx: 0, connect_reply_rx: 0 },
    ...{ ready_tx: 0, ready_rx: 0, disconnect_request_tx: 0, disconnect_request_rx: 0 },
    ...{ disconnect_reply_tx: 0, disconnect_reply_rx: 0, reject_tx: 0, reject_rx: 0, unknown_msg_rx: 0 },
  };
  for (const { frame, direction } of evidence) {
    const packet = decodeRoce(frame);
    if (packet?.bth.destQp !== CM_QP) continue;
    const { payload } = packet;
    const isCm = payload[CLASS_AT] === CM_CLASS && payload.length > ATTRIBUTE_AT + 1;
    const attribute = isCm ? ((payload[ATTRIBUTE_AT] as number) << 8) | (payload[ATTRIBUTE_AT + 1] as number) : 0;
    const name = `${MESSAGES[attribute] ?? 'unknown_msg'}_${direction === 'out' ? 'tx' : 'rx'}`;
    if (name in counts) counts[name as keyof CmFigures]++;
  }
  return counts;
}
