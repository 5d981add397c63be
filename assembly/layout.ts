// Layout of the structures that the caller reads or writes in the card's memory: offsets in bytes, or indexes where
// noted.

/**
 * A descriptor ring (txRing, rxRing). Descriptors are the kernel's struct xdp_desc: addr u64, len u32, options u32.
 * Cursors are free-running u32: producer - consumer entries are filled, entry n is at DESCRIPTORS + (n & MASK) * 16.
 */
export enum RingOffset {
  PRODUCER = 0,
  CONSUMER = 64,
  MASK = 128,
  DESCRIPTORS = 192,
}
/**
 * A completion (cqPeek). WR_ID is f64, all others u32. PSN and SYNDROME explain a failure. TIMEOUTS and RNRS count the
 * queue pair's expired ACK timers and RNR NAKs since it last made progress.
 */
export enum CqeOffset {
  WR_ID = 0,
  STATUS = 8,
  OPCODE = 12,
  BYTE_LEN = 16,
  IMM = 20,
  INVALIDATED_RKEY = 24,
  QPN = 28,
  SRC_QPN = 32,
  FLAGS = 36,
  SYNDROME = 40,
  PSN = 44,
  QP = 48,
  /** Of a received datagram, which has neither timeouts nor RNR NAKs: the sender's MAC address, 6 bytes. */
  TIMEOUTS = 52,
  RNRS = 56,
  /** Tag control information of a received datagram. */
  VLAN_TCI = 60,
}
/** An event (eventPeek): TYPE is an EventType, HANDLE the cq or qp that it concerns. */
export enum EventOffset {
  TYPE = 0,
  HANDLE = 4,
}
/**
 * Attributes of a queue pair: u32 index into the array at scratch(), and (1 << index) in the mask of qpModify, as in
 * ibv_qp_attr_mask. AV has no value here: its fields are at AvOffset. Only qpQuery writes CAP and the attributes from
 * 32 on. PATH_MTU is in bytes.
 */
export enum QpAttr {
  STATE = 0,
  CUR_STATE = 1,
  EN_SQD_ASYNC_NOTIFY = 2,
  ACCESS_FLAGS = 3,
  PKEY_INDEX = 4,
  PORT = 5,
  QKEY = 6,
  AV = 7,
  PATH_MTU = 8,
  TIMEOUT = 9,
  RETRY_CNT = 10,
  RNR_RETRY = 11,
  RQ_PSN = 12,
  MAX_QP_RD_ATOMIC = 13,
  ALT_PATH = 14,
  MIN_RNR_TIMER = 15,
  SQ_PSN = 16,
  MAX_DEST_RD_ATOMIC = 17,
  PATH_MIG_STATE = 18,
  CAP = 19,
  DEST_QPN = 20,
  /* from here on: written by qpQuery only */ QPN = 32,
  TYPE = 33,
  SQ_PENDING = 34,
  RQ_PENDING = 35,
  RETRY_LEFT = 36,
  RNR_LEFT = 37,
  UNACKED_PSN = 38,
  NEXT_PSN = 39,
  EXPECTED_PSN = 40,
  MSN = 41,
  WINDOW = 42,
  LAST_SYNDROME = 43,
  MAX_SEND_WR = 44,
  MAX_RECV_WR = 45,
  MAX_SEND_SGE = 46,
  MAX_RECV_SGE = 47,
  MAX_INLINE = 48,
  /* end-to-end flow control: messages with a receive that may be sent now (0xffffffff = no limit known), and whether
     one waits for credits */ CREDITS = 49,
  WAITS_FOR_CREDITS = 50,
  /* rate limit of congestion control, kbit/s; 0 = none */ RATE = 51,
  /* smoothed round-trip time in nanoseconds; 0 = not measured yet */ ROUND_TRIP = 52,
}
/** The address vector, in bytes from scratch(): MACs and addresses in network order (IPv4 in the first 4 bytes of 16),
 * VLAN_TCI 0xffffffff for untagged, IP_VERSION 4 or 6, the rest u32. SOURCE_PORT is the UDP source port. */
export enum AvOffset {
  DEST_MAC = 512,
  SOURCE_MAC = 520,
  VLAN_TCI = 528,
  IP_VERSION = 532,
  SOURCE_IP = 536,
  DEST_IP = 552,
  TRAFFIC_CLASS = 568,
  FLOW_LABEL = 572,
  HOP_LIMIT = 576,
  SOURCE_PORT = 580,
}

/**
 * Parameters of DCQCN (setCongestion). ENABLED: 0 or 1. ECT: 0 or 1, packets are sent as ECN-capable. Intervals are in
 * ns, BYTE_STEP is in bytes, FAST_RECOVERY in steps, GAIN is a fraction, rates are in bit/s. LINE_RATE is the rate of a
 * queue pair before its first CNP. LEAST_RATE is 0 for a tenth of it. Between two cuts lies CUT_INTERVAL.
 */
export enum CongestionParameter {
  ENABLED = 0,
  CNP_INTERVAL = 1,
  CNP_DSCP = 2,
  ALPHA_INTERVAL = 3,
  RATE_INTERVAL = 4,
  BYTE_STEP = 5,
  FAST_RECOVERY = 6,
  GAIN = 7,
  ADDITIVE_RATE = 8,
  HYPER_RATE = 9,
  LEAST_RATE = 10,
  LINE_RATE = 11,
  ECT = 12,
  CNP_PRIORITY = 13,
  CUT_INTERVAL = 14,
}

/**
 * The ring of decisions (decisions()): COUNT is the u32 number of decisions since the trace was switched on, decision
 * n is at ENTRIES + (n & MASK) * DECISION_BYTES.
 */
export enum DecisionRingOffset {
  COUNT = 0,
  MASK = 4,
  ENTRIES = 64,
}

/**
 * A decision: AT is the time of the turn in nanoseconds, an f64. The others are u32; KIND is a DecisionKind, which
 * says what the others mean.
 */
export enum DecisionOffset {
  AT = 0,
  QPN = 8,
  KIND = 12,
  REASON = 16,
  PSN = 20,
  PACKETS = 24,
  VALUE = 28,
}
export const DECISION_BYTES: u32 = 32;
