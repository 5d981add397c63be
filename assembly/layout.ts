// Where things lie that the caller reads or writes in the card's memory: offsets in bytes, or indexes where it says so.

/** A descriptor ring (txRing, rxRing). Descriptors are the kernel's struct xdp_desc: addr u64, len u32, options u32.
 * Cursors are free-running u32: producer - consumer entries are filled, entry n is at DESCRIPTORS + (n & MASK) * 16. */
export enum RingOffset {
  PRODUCER = 0,
  CONSUMER = 64,
  MASK = 128,
  DESCRIPTORS = 192,
}
/** A completion (cqPeek). WR_ID f64, all others u32; PSN and SYNDROME explain a failure; TIMEOUTS and RNRS count this
 * queue pair's expired ACK timers and RNR NAKs since it last made progress. */
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
  TIMEOUTS = 52,
  RNRS = 56,
}
/** An event (eventPeek): TYPE is an EventType, HANDLE the cq or qp it is about. */
export enum EventOffset {
  TYPE = 0,
  HANDLE = 4,
}
/** Attributes of a queue pair: u32 index into the array at scratch(), and (1 << index) in the mask of qpModify - the bits of ibv_qp_attr_mask.
 * AV is no number: its fields are at AvOffset. CAP... are answered by qpQuery only. PATH_MTU is in bytes. */
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
  /* answered by qpQuery beside the above */ QPN = 32,
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
  /* of end-to-end flow control: messages that need a receive and may be sent now (0xffffffff = no limit known), and whether one
     waits for credits */ CREDITS = 49,
  WAITS_FOR_CREDITS = 50,
  /* to which CNPs have slowed it down, kbit/s; 0 = not slowed down */ RATE = 51,
  /* smoothed, nanoseconds; 0 = not measured yet */ ROUND_TRIP = 52,
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

/** Parameters of DCQCN (setCongestion): ENABLED 0 or 1; ECT 0 or 1: packets say that a switch may mark them; intervals in ns; BYTE_STEP in bytes; FAST_RECOVERY in steps; GAIN a
 * fraction; rates in bit/s. LINE_RATE is where a queue pair starts when it is first told to slow down. */
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
}
