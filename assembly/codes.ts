// Codes: the enums and numbers that the card shares with its caller and the wire. Codes of the wire and of verbs have
// the values of the IBTA specification and of Linux' ib_verbs, so that they can be compared with the output of other
// tools.

/** Return values of calls that can be refused (Linux errno values). */
export enum Errno {
  OK = 0,
  ENOENT = 2,
  ENOMEM = 12,
  EBUSY = 16,
  EINVAL = 22,
  EMSGSIZE = 90,
  EOPNOTSUPP = 95,
}

export enum QpType {
  /**
   * Queue pair 1, for management datagrams. A card has at most one; apart from number and Q_Key it is a UD queue pair.
   */
  GSI = 1,
  RC = 2,
  UC = 3,
  UD = 4,
}

/** The number of queue pair 1, and its well-known Q_Key (IBTA 10.2.5). */
export const GSI_QPN: u32 = 1;
export const GSI_QKEY: u32 = 0x80010000;
/** The destination queue pair number of multicast packets (IBTA 10.5.1). */
export const MULTICAST_QPN: u32 = 0xffffff;

/** The sign of the peer of a queue pair since the last look. */
export enum PeerSign {
  /** A packet. */
  HEARD = 0,
  /** Nothing, and nothing is in flight. */
  SILENT = 1,
  /** Nothing, and packets are in flight. */
  AWAITED = 2,
}

export enum QpState {
  RESET = 0,
  INIT = 1,
  RTR = 2,
  RTS = 3,
  SQD = 4,
  SQE = 5,
  ERR = 6,
}

/** Status of a completion (ibv_wc_status). */
export enum WcStatus {
  SUCCESS = 0,
  LOC_LEN_ERR = 1,
  LOC_QP_OP_ERR = 2,
  LOC_EEC_OP_ERR = 3,
  LOC_PROT_ERR = 4,
  WR_FLUSH_ERR = 5,
  /** The memory management operation error: of BIND_MW, REG_MR and LOCAL_INV. */
  MW_BIND_ERR = 6,
  BAD_RESP_ERR = 7,
  LOC_ACCESS_ERR = 8,
  REM_INV_REQ_ERR = 9,
  REM_ACCESS_ERR = 10,
  REM_OP_ERR = 11,
  RETRY_EXC_ERR = 12,
  RNR_RETRY_EXC_ERR = 13,
}

/** Operation of a completion (ibv_wc_opcode). */
export enum WcOpcode {
  SEND = 0,
  RDMA_WRITE = 1,
  RDMA_READ = 2,
  COMP_SWAP = 3,
  FETCH_ADD = 4,
  BIND_MW = 5,
  LOCAL_INV = 6,
  FLUSH = 8,
  ATOMIC_WRITE = 9,
  /** Linux has no number for user space. */
  REG_MR = 100,
  RECV = 128,
  RECV_RDMA_WITH_IMM = 129,
}

export enum WcFlag {
  GRH = 1,
  WITH_IMM = 2,
  WITH_INV = 8,
  /** As in Linux' kernel verbs (IB_WC_WITH_VLAN). */
  WITH_VLAN = 64,
  /** The header in front of a datagram is IPv6's. Linux' kernel verbs have a type of header in its place. */
  IPV6 = 128,
}

/** Operation of a send work request (ibv_wr_opcode). */
export enum WrOpcode {
  RDMA_WRITE = 0,
  RDMA_WRITE_WITH_IMM = 1,
  SEND = 2,
  SEND_WITH_IMM = 3,
  RDMA_READ = 4,
  ATOMIC_CMP_AND_SWP = 5,
  ATOMIC_FETCH_AND_ADD = 6,
  LOCAL_INV = 7,
  BIND_MW = 8,
  SEND_WITH_INV = 9,
  FLUSH = 14,
  ATOMIC_WRITE = 15,
  /** Linux' kernel verbs use 32. */
  REG_MR = 30,
}

/** Flags of a send work request (ibv_send_flags). */
export enum SendFlag {
  FENCE = 1,
  SIGNALED = 2,
  SOLICITED = 4,
  INLINE = 8,
}

/** The guarantee of a FLUSH (IBTA A19.4): the data is globally visible, or it is persistent. */
export enum FlushPlacement {
  GLOBAL = 1,
  PERSISTENT = 2,
}

/** Which data a FLUSH covers. */
export enum FlushSelectivity {
  RANGE = 0,
  MR = 1,
}

/** Memory windows (ibv_mw_type). */
export enum MwType {
  TYPE_1 = 1,
  TYPE_2 = 2,
}

/** Access rights of a memory region and of a queue pair (ibv_access_flags). */
export enum Access {
  LOCAL_WRITE = 1,
  REMOTE_WRITE = 2,
  REMOTE_READ = 4,
  REMOTE_ATOMIC = 8,
  MW_BIND = 16,
  ZERO_BASED = 32,
  FLUSH_GLOBAL = 256,
  /**
   * Not in ibv_access_flags: LOCAL_INV and a peer's SEND_WITH_INV may invalidate the region's key, as they may that of
   * a fast-registered region.
   */
  INVALIDATE = 1 << 24,
}

/**
 * Types of events that `eventPeek` returns: ibv_event_type, COMPLETION for an armed CQ, MISSED when the event ring
 * overflowed, and three of this card's own.
 */
export enum EventType {
  CQ_ERR = 0,
  QP_FATAL = 1,
  QP_REQ_ERR = 2,
  QP_ACCESS_ERR = 3,
  COMM_EST = 4,
  SQ_DRAINED = 5,
  SRQ_LIMIT_REACHED = 15,
  QP_LAST_WQE_REACHED = 16,
  COMPLETION = 100,
  MISSED = 101,
  /** The queue pair has refused a request for a second: it has no receive. */
  QP_NO_RECEIVE = 102,
  /** Packets arrive for the queue pair, and none has had the right ICRC. */
  QP_ICRC_ERR = 103,
  /** A packet was dropped or retransmitted, of any queue pair: raised once after `awaitLoss`. */
  LOSS = 104,
}

/** The kinds of traced decisions (`traceDecisions`). */
export enum DecisionKind {
  /** The queue pair changes its state: REASON is a StateReason, VALUE the old state | the new one << 8. */
  STATE = 1,
  /** Packets are sent again, from PSN on: REASON is a RetransmitReason, VALUE the retries that are left. */
  RETRANSMIT = 2,
  /** The retransmission begins within the response to a READ, of which PACKETS have arrived. */
  READ_RESUMED = 3,
  /** An ACK covers PACKETS that were about to be sent again: sending goes on at PSN. */
  SKIPPED = 4,
  /** The first progress after a retry: everything before PSN is acknowledged, and all retries are available again. */
  RECOVERED = 5,
  /** The early retransmission was right: the packets from PSN on count as lost too. */
  PROBE_LOST = 6,
  /** The early retransmission was needless: the peer was late. Sending goes on at PSN. */
  PROBE_DELIVERED = 7,
  /** The oldest send work request fails: REASON is a WcStatus, VALUE the syndrome (0 = none). */
  SEND_FAILED = 8,
  /** The responder rejects the packet with this PSN. VALUE is the syndrome, PACKETS the gap before a later packet. */
  NAK = 9,
  /** The responder drops a repeated READ, of whose response PACKETS from PSN on were left: its memory is gone. */
  REPLAY_DROPPED = 10,
  /** The responder sends the ACK of PSN, which it has deferred for the peer to send all before it again: it has not. */
  ACK_DEFERRED = 11,
}

/** Reasons of a queue pair to change its state. */
export enum StateReason {
  /** qpModify. */
  MODIFY = 1,
  /** qpDestroy. */
  DESTROY = 2,
  /** A send work request has failed. */
  SEND_FAILED = 3,
  /** The responder has rejected a request for good. */
  REQUEST_REJECTED = 4,
  /** A receive work request has failed. */
  RECV_FAILED = 5,
  /** A completion was lost. */
  CQ_OVERRUN = 6,
}

/** Reasons to send packets again. */
export enum RetransmitReason {
  ACK_TIMEOUT = 1,
  SEQUENCE_NAK = 2,
  /** After the delay that the peer asks for. */
  RNR_NAK = 3,
  /** A later response shows that an earlier one is missing. */
  IMPLIED_NAK = 4,
  /** An ACK is overdue against the round-trip time: the oldest packet alone. */
  EARLY = 5,
}

/** Properties of the link below the card (`setLink`). */
export enum LinkFlag {
  /** Every frame leaves with the link's UDP source port, whatever the card wrote (an ordinary UDP socket). */
  FIXED_SOURCE_PORT = 1,
  /** The link completes the ICRC of sent frames whose descriptor says so (TX_ICRC_SHIFT). */
  ICRC_OFFLOAD = 2,
}

/** Deviations of particular peers from the specification that a queue pair can be set to share. */
export enum Quirk {
  /**
   * Linux rxe up to 6.12 at least: the ICRC of a FLUSH covers the headers from the BTH on twice, the second time
   * unmasked.
   */
  RXE_FLUSH_ICRC = 1,
  /** Linux rxe up to 6.12 at least: a retransmitted FLUSH has address 0. */
  RXE_FLUSH_ADDRESS = 2,
  /** MigReq is 0 in all packets, as some adapters send it. */
  MIG_REQ_ZERO = 4,
}

/** `options` of a transmit descriptor. */
export enum TxOption {
  /** The frame belongs to the GSO burst of the frame before it (see Frames.tx in src/link/link.ts). */
  CONTINUES_BURST = 0x10000,
  /**
   * The ICRC span (TX_ICRC_SHIFT) is elsewhere in the card's memory, and the link copies it into the
   * frame. The first eight bytes of its place are its address (u64, little-endian).
   */
  FETCH_SPAN = 0x8000,
}
/**
 * From this bit on: the number of bytes in front of the ICRC that the link still has to include; 0 = none. The ICRC
 * field then holds the CRC register before those bytes.
 */
export const TX_ICRC_SHIFT: u32 = 17;

/** `options` of a receive descriptor. From bit RX_SEGMENT_SHIFT on: the segment size of a super-packet in bytes. */
export enum RxOption {
  /** The link could not see the IPv4 identification and wrote 0; the card solves for it (see wire/icrc). */
  IP_ID_UNKNOWN = 0x10000,
  /** The link has XORed the CRC of the ICRC span into the ICRC of each packet (see wire/icrc). */
  ICRC_FOLDED = 0x8000,
}
export const RX_SEGMENT_SHIFT: u32 = 17;
