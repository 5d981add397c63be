// Sizes and codes that bound the card. Codes that appear on the wire or in verbs have the numbers of the IBTA
// specification and of Linux' ib_verbs, so that they can be laid beside other tools' output.

/** Largest path MTU (payload bytes of one packet). */
export const MAX_MTU: u32 = 4096;
/** Headers, pad and ICRC around that payload: Ethernet 14, VLAN 4, IPv6 40, UDP 8, BTH 12, RETH 16, ImmDt 4, pad 3, ICRC 4. */
export const MAX_FRAME: u32 = MAX_MTU + 105;
/** Largest message (IBTA 9.7.7: 2^31 bytes). */
export const MAX_MESSAGE: u32 = 0x80000000;
export const MAX_SGE: u32 = 32;
export const MAX_INLINE: u32 = 1024;
export const MAX_WR: u32 = 32768;
export const MAX_CQE: u32 = 1 << 22;
/** READ and atomic requests that a queue pair may have outstanding, in either direction. */
export const MAX_RD_ATOMIC: u32 = 128;
/** Bytes that `scratch()` points at: where the caller hands variable data in and out. */
export const SCRATCH_BYTES: u32 = 4096;

/** Answers of calls that can be refused (the numbers of Linux). */
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
  /** Queue pair 1, for management datagrams: one for a card, in all else one of UD. */
  GSI = 1,
  RC = 2,
  UC = 3,
  UD = 4,
}

/** The number of queue pair 1, and its Q_Key, which everybody knows (IBTA 10.2.5). */
export const GSI_QPN: u32 = 1;
export const GSI_QKEY: u32 = 0x80010000;

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
  /** Of Linux' kernel verbs, where it is 32. */
  REG_MR = 30,
}

/** Flags of a send work request (ibv_send_flags). */
export enum SendFlag {
  FENCE = 1,
  SIGNALED = 2,
  SOLICITED = 4,
  INLINE = 8,
}

/** What a FLUSH makes sure of (IBTA A19.4): that the data can be seen by all, or that it outlives a power failure. */
export enum FlushPlacement {
  GLOBAL = 1,
  PERSISTENT = 2,
}

/** Which data a FLUSH is about. */
export enum FlushSelectivity {
  RANGE = 0,
  MR = 1,
}

/** Memory windows (ibv_mw_type). */
export enum MwType {
  TYPE_1 = 1,
  TYPE_2 = 2,
}

/** Rights of a memory region and of a queue pair (ibv_access_flags). */
export enum Access {
  LOCAL_WRITE = 1,
  REMOTE_WRITE = 2,
  REMOTE_READ = 4,
  REMOTE_ATOMIC = 8,
  MW_BIND = 16,
  ZERO_BASED = 32,
  FLUSH_GLOBAL = 256,
  /** Ours: the region's key may be closed by LOCAL_INV and by a peer's SEND_WITH_INV, as that of a fast-registered one. */
  INVALIDATE = 1 << 24,
}

/** What `eventPeek` may tell: ibv_event_type, COMPLETION for an armed CQ, and MISSED when there was no room for events. */
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
}

/** What the link below the card promises (`setLink`). */
export enum LinkFlag {
  /** Every frame leaves with this UDP source port, whatever the card wrote (an ordinary UDP socket). */
  FIXED_SOURCE_PORT = 1,
  /** The link completes the ICRC of sent frames, where the card leaves bytes to it (TX_ICRC_SHIFT). */
  ICRC_OFFLOAD = 2,
}

/** Habits of particular peers that break the rules, and that a queue pair can be told to share. */
export enum Quirk {
  /** Linux rxe up to 6.12 at least: the ICRC of a FLUSH covers its headers from the BTH on a second time, unmasked. */
  RXE_FLUSH_ICRC = 1,
  /** The same: a FLUSH that is sent a second time has address 0. */
  RXE_FLUSH_ADDRESS = 2,
  /** MigReq is 0 in all packets, as some adapters send it. */
  MIG_REQ_ZERO = 4,
}

/** `options` of a transmit descriptor. */
export enum TxOption {
  /** The frame belongs to the run of the one before it (see Frames.tx in src/link/link.ts). */
  CONTINUES_RUN = 0x10000,
}
/** Above them: the bytes in front of the ICRC that the link has still to include, 0 = none. What stands in the place of the
 * ICRC is the register before them. */
export const TX_ICRC_SHIFT: u32 = 17;

/** `options` of a receive descriptor; above them, from RX_SEGMENT_SHIFT on, the bytes of a super-packet's segments. */
export enum RxOption {
  /** The link could not see the IPv4 identification and wrote 0: the card solves for it (see wire/icrc). */
  IP_ID_UNKNOWN = 0x10000,
  /** The ICRC of each packet is XORed with the CRC of the bytes that are left to the link (see wire/icrc). */
  ICRC_FOLDED = 0x8000,
}
export const RX_SEGMENT_SHIFT: u32 = 17;

// ---- where fixed things lie in the card's memory. Everything else is in the pool (host/pool). ----
/** Records of one kind each, a few cache lines apart; nothing below 1024, so that pointer 0 is never valid. */
export const POOL: usize = 1024;
export const RANDOM: usize = 1280;
export const RNIC: usize = 1536;
export const PACKET: usize = 2048;
/** The run of packets that is being sent (qp/run). */
export const RUN: usize = 2240;
export const COUNTERS: usize = 3072;
export const SCRATCH: usize = 4096;
/** Count and GIDs (host/gid). */
export const GIDS: usize = 9216;
/** Parameters of congestion control (qp/congestion). */
export const CONGESTION: usize = 10496;
/** 40 bytes in which a datagram's GRH is put together (qp/datagram). */
export const DATAGRAM_PAD: usize = 10752;
/** 16 bytes for the group of a multicast datagram (rnic). */
export const MGID_PAD: usize = 10816;
/** Count and P_Keys (host/pkey). */
export const PKEYS: usize = 10880;
/** 256 rows of 4 bytes (wire/opcode). */
export const OPCODE_TABLE: usize = 8192;
/** 16 tables of 256 u32 (wire/crc). */
export const CRC_TABLE: usize = 16384;
/** 18 words (wire/icrc). */
export const INVERSE_POWERS: usize = 32768;
/** Two tables of 256 u32 (wire/icrc). */
export const ID_TERMS: usize = 33024;
/** Lists of free memory (host/pool), up to CRC_SCRATCH. */
export const POOL_LISTS: usize = 35072;
/** What the CRC folds into (wire/crc), up to SHIFT_TABLES. */
export const CRC_SCRATCH: usize = 36864;
/** For each number of bytes that a link may take part of the ICRC over, four tables of 256 u32 (wire/icrc). */
export const SHIFT_TABLES: usize = 43008;
export const POOL_START: usize = 65536;
