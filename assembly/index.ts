// The card's exports. Every pointer is an offset in the card's memory; handles are pointers to the card's objects.
// A call that can be refused answers an Errno, or handle 0 with the reason in lastErrno().
export * from './limits';

// ---- where things lie: offsets in bytes, for the caller who looks into the card's memory ----
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

// ---- the card ----
/** 4 KiB through which seeds, addresses and attributes are handed over. */
export function scratch(): usize {
  return 0;
}
export function lastErrno(): u32 {
  return 0;
}
/** Lays out the memory and makes the card ready. A 32-byte seed lies at scratch(); all keys, QPNs and PSNs come from it. */
export function open(memoryBytes: f64, slotBytes: u32, txSlots: u32, rxSlots: u32, maxQp: u32, maxMr: u32): u32 {
  return 0;
}
/** What the link promises: LinkFlag bits, and its UDP source port where that is fixed. */
export function setLink(flags: u32, sourcePort: u32): void {}
export function txRing(): usize {
  return 0;
}
export function rxRing(): usize {
  return 0;
}

// ---- a turn: receive, expire, transmit. `now` in nanoseconds of any monotonic clock ----
/** Takes up to `max` frames off the receive ring; answers how many. */
export function rx(now: f64, max: u32): u32 {
  return 0;
}
/** Lets every deadline that has passed take effect. */
export function expire(now: f64): void {}
/** Puts up to `max` frames on the transmit ring; answers how many. */
export function tx(now: f64, max: u32): u32 {
  return 0;
}
/** When expire wants to be called next, in nanoseconds; 0 = nothing is waiting. May be early, is never late. */
export function nextDeadline(): f64 {
  return 0;
}
/** Oldest event or 0; eventPop forgets it. */
export function eventPeek(): usize {
  return 0;
}
export function eventPop(): void {}
/** Counters of the card and of one queue pair: u64 each, in the order of the enum Counter. */
export function counters(): usize {
  return 0;
}
export function qpCounters(qp: usize): usize {
  return 0;
}

// ---- memory, protection domains, regions ----
/** Zeroed memory for the user's data, 4 KiB aligned; 0 = none left. */
export function memAlloc(bytes: u32): usize {
  return 0;
}
export function memFree(ptr: usize): void {}
export function memAvailable(): f64 {
  return 0;
}
export function pdAlloc(): usize {
  return 0;
}
export function pdFree(pd: usize): u32 {
  return 0;
}
/** A region over memory of memAlloc; the wire knows it from address iova on. EINVAL: remote write or atomic without local write. */
export function mrReg(pd: usize, ptr: usize, length: u32, access: u32, iovaHigh: u32, iovaLow: u32): usize {
  return 0;
}
export function mrDereg(mr: usize): u32 {
  return 0;
}
export function mrLkey(mr: usize): u32 {
  return 0;
}
export function mrRkey(mr: usize): u32 {
  return 0;
}

// ---- completion queues ----
export function cqCreate(cqe: u32): usize {
  return 0;
}
export function cqDestroy(cq: usize): u32 {
  return 0;
}
/** Asks for one COMPLETION event at the next completion (or the next solicited or failed one). */
export function cqArm(cq: usize, solicitedOnly: bool): void {}
/** Oldest completion or 0; cqPop forgets it. */
export function cqPeek(cq: usize): usize {
  return 0;
}
export function cqPop(cq: usize): void {}
export function cqOverrun(cq: usize): bool {
  return false;
}

// ---- queue pairs ----
export function qpCreate(
  pd: usize,
  type: u32,
  sendCq: usize,
  recvCq: usize,
  maxSendWr: u32,
  maxRecvWr: u32,
  maxSendSge: u32,
  maxRecvSge: u32,
  maxInline: u32,
  signalAll: bool,
): usize {
  return 0;
}
export function qpDestroy(qp: usize): u32 {
  return 0;
}
export function qpNumber(qp: usize): u32 {
  return 0;
}
/** A random PSN for SQ_PSN. */
export function randomPsn(): u32 {
  return 0;
}
/** Attributes at scratch(), `mask` names those that count. Refused: EINVAL, and qpRefused() has the bits at fault:
 * missing, not allowed in this transition, or with a value out of range. Nothing is changed then. */
export function qpModify(qp: usize, mask: u32): u32 {
  return 0;
}
/** Bits of the attributes that the last refused qpModify missed (0), would not allow (1), or found out of range (2). */
export function qpRefused(why: u32): u32 {
  return 0;
}
/** Writes all attributes to scratch(). */
export function qpQuery(qp: usize): void {}

// ---- posting: begin, describe, commit. Nothing is visible to the card before the commit ----
/** Room for a send work request; false with lastErrno() ENOMEM (queue full) or EINVAL (state). */
export function sqBegin(qp: usize, wrId: f64, opcode: u32, flags: u32): bool {
  return false;
}
/** Adds a piece of local memory. */
export function sqSge(qp: usize, ptr: usize, length: u32, lkey: u32): void {}
/** Instead of pieces: where to copy `length` bytes of inline data to; 0 if more than maxInline. */
export function sqInline(qp: usize, length: u32): usize {
  return 0;
}
export function sqRemote(qp: usize, vaHigh: u32, vaLow: u32, rkey: u32): void {}
export function sqAtomic(qp: usize, compareAddHigh: u32, compareAddLow: u32, swapHigh: u32, swapLow: u32): void {}
/** Immediate (the four bytes in memory order of the wire, read as little endian) or the key to invalidate. */
export function sqImm(qp: usize, value: u32): void {}
/** EINVAL: too many pieces, atomic not of 8 bytes ...; EMSGSIZE: over 2 GiB; EOPNOTSUPP: opcode not of this type of queue pair. */
export function sqCommit(qp: usize): u32 {
  return 0;
}
export function rqBegin(qp: usize, wrId: f64): bool {
  return false;
}
export function rqSge(qp: usize, ptr: usize, length: u32, lkey: u32): void {}
export function rqCommit(qp: usize): u32 {
  return 0;
}
