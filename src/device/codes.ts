/**
 * The numbers that a card and its caller share: offsets, codes and limits. The build reads them from the compiled card
 * (scripts/setup/codes.mjs), so that no layout and no code is declared twice, and using one compiles nothing.
 */
import * as card from '../../build/codes.js';

/** Access rights of memory regions, memory windows and queue pairs (`ibv_access_flags`). */
export const Access = card.Access;
/** Offsets of the fields of an address vector. */
export const AvOffset = card.AvOffset;
/** Parameters of congestion control (DCQCN). */
export const CongestionParameter = card.CongestionParameter;
/** Offsets of the fields of a completion queue entry. */
export const CqeOffset = card.CqeOffset;
/** Kinds of decisions in the decision trace. */
export const DecisionKind = card.DecisionKind;
/** Offsets of the fields of a traced decision. */
export const DecisionOffset = card.DecisionOffset;
/** Offsets of the fields of the decision trace. */
export const DecisionRingOffset = card.DecisionRingOffset;
/** Results of calls that the card refuses (errno values of Linux). */
export const Errno = card.Errno;
/** Offsets of the fields of an event. */
export const EventOffset = card.EventOffset;
/** The sign of the peer of a queue pair since the last look. */
export const PeerSign = card.PeerSign;
/** Shortest ACK timeout, nanoseconds. */
export const MIN_ACK_TIMEOUT = card.MIN_ACK_TIMEOUT;
/** A retry_cnt without limit. */
export const RETRY_INFINITE = card.RETRY_INFINITE;
/** Types of events (`ibv_event_type`), and COMPLETION for an armed completion queue. */
export const EventType = card.EventType;
/** The guarantee of a FLUSH: global visibility or persistence (IBTA A19.4). */
export const FlushPlacement = card.FlushPlacement;
/** Which data a FLUSH covers (IBTA A19.4). */
export const FlushSelectivity = card.FlushSelectivity;
/** Properties of the card's link. */
export const LinkFlag = card.LinkFlag;
/** Types of memory windows (`ibv_mw_type`). */
export const MwType = card.MwType;
/** Opcodes of the BTH for RC. UC and UD use the same operations with another class in the upper bits. */
export const Opcode = card.Opcode;
/** Flags of a row of the opcode table: kind of packet, and headers that follow the BTH. */
export const OpcodeFlag = card.OpcodeFlag;
/** Attributes of a queue pair: index of each attribute, and bit number in the mask. */
export const QpAttr = card.QpAttr;
/** States of a queue pair (`ibv_qp_state`). */
export const QpState = card.QpState;
/** Types of queue pairs (`ibv_qp_type`). */
export const QpType = card.QpType;
/** Deviations of particular peers from the specification, which a queue pair can be set to copy. */
export const Quirk = card.Quirk;
/** Reasons of a retransmission in the decision trace. */
export const RetransmitReason = card.RetransmitReason;
/** Flags of a send work request (`ibv_send_flags`). */
export const SendFlag = card.SendFlag;
/** Reasons of a state change in the decision trace. */
export const StateReason = card.StateReason;
/** Flags of a work completion (`ibv_wc_flags`). */
export const WcFlag = card.WcFlag;
/** Operation of a work completion (`ibv_wc_opcode`). */
export const WcOpcode = card.WcOpcode;
/** Status of a work completion (`ibv_wc_status`). */
export const WcStatus = card.WcStatus;
/** Operation of a send work request (`ibv_wr_opcode`). */
export const WrOpcode = card.WrOpcode;

/** The OpcodeFlag bits of each BTH opcode; 0 = unknown to the card. */
export const opcodeFlags = card.opcodeFlags;

/** Names of the card's counters, in their order in its memory. */
export const counterNames: readonly string[] = enumNames(card.Counter);

/** Size of an entry of the decision trace in bytes. */
export const decisionBytes = card.DECISION_BYTES;

/** Limits of every card. */
export const LIMITS = {
  maxMtu: card.MAX_MTU,
  maxFrame: card.MAX_FRAME,
  maxMessage: card.MAX_MESSAGE,
  maxSge: card.MAX_SGE,
  maxInline: card.MAX_INLINE,
  maxWr: card.MAX_WR,
  maxCqe: card.MAX_CQE,
  maxRdAtomic: card.MAX_RD_ATOMIC,
  maxWindow: card.MAX_WINDOW,
  maxDecisions: card.MAX_DECISIONS,
} as const;

/** Number and Q_Key of queue pair 1 (general services interface). */
export const GSI = { qpn: card.GSI_QPN, qkey: card.GSI_QKEY >>> 0 } as const;

/** Returns the name of a value of one of the enums above; the number as text if it has none. */
export function nameOf(codes: object, value: number): string {
  return (codes as Record<number, string | undefined>)[value] ?? String(value);
}

/** Returns the value of a name of one of the enums above; undefined if there is no such name. */
export function codeOf(codes: object, name: string): number | undefined {
  const value = Object.hasOwn(codes, name) ? (codes as Record<string, unknown>)[name] : undefined;
  return typeof value === 'number' ? value : undefined;
}

/** Returns the names of one of the enums above, in the order of their values. */
export function enumNames(codes: object): string[] {
  return Object.entries(codes)
    .filter((entry): entry is [string, number] => typeof entry[1] === 'number')
    .sort((a, b) => a[1] - b[1])
    .map(([name]) => name);
}
