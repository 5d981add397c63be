// The card's exports. Every pointer is an offset in the card's memory; handles are pointers to the card's objects. A
// call that can be refused returns an Errno, or handle 0 with the reason in lastErrno().
//
// Two threads may share a card, each with an instance of this module on the same memory: the card thread runs the turns
// (rx, expire, tx), the other is the application's. Only one of them may be inside the exports of this file at a time.
// Exceptions are those that read only a constant or the application's own state: scratch, lastErrno, counters,
// qpCounters, qpNumber, mrLkey, mrRkey, fastLkey. The application may call the exports of posting.ts at any time.

import { openCard } from './boot';
import { Errno, MwType, QpType } from './codes';
import { failWith, handleOrEnomem, u64Of } from './errno';
import { allocatePages, available, releasePages } from './host/arena';
import { Card } from './host/card';
import { Cq } from './host/cq';
import { setGids } from './host/gid';
import { Mr, registerMr } from './host/mr';
import { congestionParameter, setCongestionParameter } from './host/parameter';
import { Pd } from './host/pd';
import { pkeyAt, setPkeyTable } from './host/pkey';
import { allocateAligned, pool } from './host/pool';
import { random32 } from './host/random';
import { RecvQueue } from './host/rq';
import { Table } from './host/table';
import { MAX_CQE, MAX_WINDOW, MAX_WR } from './limits';
import { COUNTERS, SCRATCH } from './memorymap';
import { setAdaptive } from './qp/adaptive';
import { Ah } from './qp/ah';
import { createQp, destroyQp, QpInit } from './qp/create';
import { setFlowControl } from './qp/credit';
import { setDecisionTrace } from './qp/decisions';
import { expireTimers } from './qp/expire';
import { GsoBurst } from './qp/gso';
import { takeSign } from './qp/keepalive';
import { modifyQp } from './qp/modify';
import { attach, detach } from './qp/multicast';
import { Path } from './qp/path';
import { Qp } from './qp/qp';
import { setQpnBits } from './qp/qpn';
import { queryQp } from './qp/query';
import { receiveFrames, receiveOne } from './qp/recv';
import { earliestDeadline } from './qp/timer';
import { transmitFrames } from './qp/transmit';
import { writeDatagram } from './qp/ud';
import { limitWindow } from './qp/window';
import { flagsOf, initOpcodes, isKnown, Opcode } from './wire/opcode';

export * from './codes';
export { Counter } from './counters';
export * from './layout';
export * from './limits';
export * from './posting';
export { Syndrome } from './wire/aeth';
export { Opcode, OpcodeFlag } from './wire/opcode';

// ---- the card ----
/** Returns the 4 KiB through which the caller passes seeds, addresses and attributes. */
export function scratch(): usize {
  return SCRATCH;
}
export function lastErrno(): u32 {
  return Card.get().lastErrno;
}
/** Returns the OpcodeFlag bits of a BTH opcode; 0 = unknown to the card. The card need not be open. */
export function opcodeFlags(opcode: u32): u32 {
  if (!isKnown(Opcode.SEND_FIRST)) initOpcodes();
  return flagsOf(opcode);
}
/**
 * Lays out the memory, which must be zero, and makes the card ready. The caller puts a 32-byte seed at scratch(); all
 * keys, QPNs and PSNs are derived from it.
 */
export function open(
  memoryBytes: f64,
  txSlotBytes: u32,
  txSlots: u32,
  rxSlotBytes: u32,
  rxSlots: u32,
  maxQp: u32,
  maxMr: u32,
): u32 {
  return openCard(<u64>memoryBytes, txSlotBytes, txSlots, rxSlotBytes, rxSlots, maxQp, maxMr);
}
/** Sets the shortest ACK timeout; 0 takes the attribute `timeout` of a queue pair literally. */
export function setMinAckTimeout(nanoseconds: f64): void {
  Card.get().minAckTimeout = <u64>nanoseconds;
}
/** Sets how many packets ahead of a gap the responders keep SENDs and WRITEs; 0 = they drop them (go-back-N). */
export function setReorderWindow(packets: u32): void {
  Card.get().reorderWindow = packets;
}
/**
 * Sets the properties of the link: LinkFlag bits, its UDP source port if that is fixed, and the largest GSO burst that
 * it sends as one super-packet, in packets and bytes of UDP payload; 0 packets = no GSO.
 */
export function setLink(flags: u32, sourcePort: u32, burstPackets: u32, burstBytes: u32): void {
  let card = Card.get();
  card.linkFlags = flags;
  card.linkSourcePort = sourcePort;
  let burst = GsoBurst.current();
  burst.maxPackets = burstPackets > 1 ? burstPackets : 0;
  burst.maxBytes = burstBytes;
}
/**
 * Sets bits of the numbers of queue pairs that are created from now on. Returns EINVAL if a bit is not in the mask, or
 * the mask leaves less than 4 numbers for each queue pair that the card may have.
 */
export function setQpn(mask: u32, bits: u32): u32 {
  return setQpnBits(Card.get(), mask, bits) ? Errno.OK : Errno.EINVAL;
}
/**
 * Sets the port's addresses, `gids` GIDs of 16 bytes at scratch(), and the largest payload of a datagram in bytes.
 * Returns EINVAL when there are too many GIDs.
 */
export function setPort(gids: u32, mtu: u32): u32 {
  Card.get().portMtu = mtu;
  return setGids(SCRATCH, gids) ? Errno.OK : Errno.EINVAL;
}
/**
 * Sets the port's P_Keys, `count` u32 at scratch(); the initial table is 0xffff only. Queue pairs keep the P_Key that
 * they have. Returns EINVAL for an empty table, more than 128 P_Keys, or a P_Key without partition number.
 */
export function setPkeys(count: u32): u32 {
  return setPkeyTable(SCRATCH, count) ? Errno.OK : Errno.EINVAL;
}
/** Returns the P_Key at an index, or 0 beyond the end of the table. */
export function pkey(index: u32): u32 {
  return pkeyAt(index);
}
/** Sets a CongestionParameter for all queue pairs. ECT applies to address vectors that are set afterwards. */
export function setCongestion(which: u32, value: f64): void {
  setCongestionParameter(which, value);
}
export function congestion(which: u32): f64 {
  return congestionParameter(which);
}
export function txRing(): usize {
  return changetype<usize>(Card.get().txRing);
}
export function rxRing(): usize {
  return changetype<usize>(Card.get().rxRing);
}

// ---- a turn: receive, expire, transmit. `now` is in nanoseconds of any monotonic clock ----
/** Takes frames off the receive ring until it has taken `max` packets or more. Returns the number of packets. */
export function rx(now: f64, max: u32): u32 {
  return receiveFrames(<u64>now, max);
}
/**
 * Receives a frame that is elsewhere in the card's memory, as rx does one of the ring. Returns the number of packets.
 */
export function rxFrame(now: f64, frame: usize, bytes: u32, options: u32): u32 {
  return receiveOne(<u64>now, frame, bytes, options);
}
/** Handles all deadlines that have passed. */
export function expire(now: f64): void {
  expireTimers(<u64>now);
}
/** Puts up to `max` frames on the transmit ring. Returns their number. */
export function tx(now: f64, max: u32): u32 {
  return transmitFrames(<u64>now, max);
}
/**
 * Returns when expire must be called next, in nanoseconds; 0 = no deadline. The time may be too early but never too
 * late.
 */
export function nextDeadline(): f64 {
  return <f64>earliestDeadline();
}
/** Return the counters of the card and of one queue pair: u64 each, in the order of the enum Counter. */
export function counters(): usize {
  return COUNTERS;
}
export function qpCounters(qp: usize): usize {
  return changetype<Qp>(qp).counters;
}

/**
 * Traces the last `entries` decisions of all queue pairs: a power of two up to MAX_DECISIONS, 0 = off. Returns EINVAL
 * or ENOMEM when refused.
 */
export function traceDecisions(entries: u32): u32 {
  return setDecisionTrace(entries);
}
/** Returns the ring of decisions, or 0 when they are not traced. */
export function decisions(): usize {
  return Card.get().decisions;
}
/** Raises a LOSS event for the next packet that is dropped or retransmitted. */
export function awaitLoss(): void {
  Card.get().isLossAwaited = true;
}

// ---- memory, protection domains, regions ----
/**
 * Allocates zeroed memory for the application's data, aligned to 4 KiB; returns 0 when none is left. Memory that the
 * application once had is never used for the card's objects.
 */
export function memAlloc(bytes: u32): usize {
  return allocatePages(bytes);
}
export function memFree(ptr: usize): void {
  releasePages(ptr);
}
/** Returns the free bytes, those among them included that only memAlloc can use. */
export function memAvailable(): f64 {
  return <f64>available();
}
/** Returns the free bytes that the card's objects can use. */
export function objectMemAvailable(): f64 {
  return <f64>pool().freeUnits * pool().unitBytes;
}
/** Allocates zeroed memory for a link's rings, apart from the application's, aligned to 4 KiB; 0 when none is left. */
export function ringAlloc(bytes: u32): usize {
  return allocateAligned(bytes, 4096);
}
export function pdAlloc(): usize {
  return handleOrEnomem(changetype<usize>(Pd.create()));
}
export function pdFree(pd: usize): u32 {
  return changetype<Pd>(pd).destroy();
}
/**
 * Registers memory of memAlloc, or of another region of the host (host/place), under the virtual address iova. EINVAL:
 * remote write or atomic access without local write.
 */
export function mrReg(
  pd: usize,
  placeHigh: u32,
  placeLow: u32,
  length: u32,
  access: u32,
  iovaHigh: u32,
  iovaLow: u32,
): usize {
  let place = u64Of(placeHigh, placeLow);
  return changetype<usize>(registerMr(changetype<Pd>(pd), place, length, access, u64Of(iovaHigh, iovaLow)));
}
/** Deregisters a region. EBUSY while memory windows are bound to it. */
export function mrDereg(mr: usize): u32 {
  return changetype<Mr>(mr).destroy(Card.get().keys);
}
/** Makes the local key valid in every protection domain. The remote key stays valid in its own. */
export function mrForAllPds(mr: usize): void {
  changetype<Mr>(mr).isForAllPds = true;
}
/**
 * Reregisters as mrReg would, under new keys unless `keepsKeys`. When refused (EINVAL, or EBUSY while memory windows
 * are bound) nothing changes.
 */
export function mrRereg(
  mr: usize,
  pd: usize,
  keepsKeys: bool,
  placeHigh: u32,
  placeLow: u32,
  length: u32,
  access: u32,
  iovaHigh: u32,
  iovaLow: u32,
): u32 {
  let keys = Card.get().keys;
  let place = u64Of(placeHigh, placeLow);
  let iova = u64Of(iovaHigh, iovaLow);
  return changetype<Mr>(mr).reregister(keys, changetype<Pd>(pd), keepsKeys, place, length, access, iova);
}
/** Creates a region without memory, for a REG_MR work request. */
export function mrAllocFast(pd: usize): usize {
  return mrHandle(Mr.createFast(keysWithRoom(), changetype<Pd>(pd)));
}
/** Returns whether the keys are valid. Those of an unregistered fast region and of an unbound memory window are not. */
export function mrIsValid(mr: usize): bool {
  return changetype<Mr>(mr).isValid;
}
/** Allocates a memory window of MwType 1 or 2. mrRkey returns its key, mwFree frees it. */
export function mwAlloc(pd: usize, type: u32): usize {
  if (type != MwType.TYPE_1 && type != MwType.TYPE_2) return failWith(Errno.EINVAL);
  return mrHandle(Mr.createWindow(keysWithRoom(), changetype<Pd>(pd), type));
}
export function mwFree(mw: usize): u32 {
  return changetype<Mr>(mw).destroy(Card.get().keys);
}
export function mrLkey(mr: usize): u32 {
  return changetype<Mr>(mr).lkey;
}
export function mrRkey(mr: usize): u32 {
  return changetype<Mr>(mr).rkey;
}

/** Returns the local key that REG_MR sets together with this remote key. */
export function fastLkey(rkey: u32): u32 {
  return Mr.lkeyFor(rkey);
}

// ---- completion queues ----
export function cqCreate(cqe: u32): usize {
  return handleOrEnomem(cqe == 0 || cqe > MAX_CQE ? 0 : changetype<usize>(Cq.create(cqe, Card.get().events)));
}
/** Makes room for at least `cqe` completions and keeps the pending ones. EINVAL when they would not fit, ENOMEM. */
export function cqResize(cq: usize, cqe: u32): u32 {
  return cqe == 0 || cqe > MAX_CQE ? Errno.EINVAL : changetype<Cq>(cq).resize(cqe);
}
/** Removes the pending completions of a queue pair that has been reset. The caller is the thread that polls. */
export function cqClean(cq: usize, qp: usize): void {
  changetype<Cq>(cq).clean(qp);
}
/** Returns the number of pending completions. */
export function cqFilled(cq: usize): u32 {
  return changetype<Cq>(cq).filled;
}
export function cqDestroy(cq: usize): u32 {
  return changetype<Cq>(cq).destroy();
}

// ---- shared receive queues ----
/** Creates a queue of at least `wr` requests of up to `sge` SGEs. */
export function srqCreate(pd: usize, wr: u32, sge: u32): usize {
  if (!RecvQueue.areSizesValid(wr, sge)) return failWith(Errno.EINVAL);
  return handleOrEnomem(RecvQueue.createShared(changetype<Pd>(pd), wr, sge).ptr);
}
export function srqDestroy(srq: usize): u32 {
  return changetype<RecvQueue>(srq).destroyShared(Card.get().events);
}
/** Arms one SRQ_LIMIT_REACHED event, raised when fewer than `limit` requests are left; 0 = none. */
export function srqLimit(srq: usize, limit: u32): u32 {
  let queue = changetype<RecvQueue>(srq);
  if (limit > queue.entries) return Errno.EINVAL;
  queue.limit = limit;
  return Errno.OK;
}
/** EINVAL when the posted requests would not fit, or when the limit is larger than `wr`. */
export function srqResize(srq: usize, wr: u32): u32 {
  let queue = changetype<RecvQueue>(srq);
  if (wr == 0 || wr > MAX_WR || wr < queue.filled || wr < queue.limit) return Errno.EINVAL;
  return queue.resize(wr) ? Errno.OK : Errno.ENOMEM;
}
/** Sets how many requests are left to queue pairs with a quota that hold none. */
export function srqReserve(srq: usize, reserve: u32): void {
  changetype<RecvQueue>(srq).reserve = reserve;
}
export function srqEntries(srq: usize): u32 {
  return changetype<RecvQueue>(srq).entries;
}
export function srqFilled(srq: usize): u32 {
  return changetype<RecvQueue>(srq).filled;
}
export function srqCurrentLimit(srq: usize): u32 {
  return changetype<RecvQueue>(srq).limit;
}

// ---- address handles and multicast, for UD queue pairs ----
/** Creates an address handle from the address vector at scratch(). */
export function ahCreate(pd: usize): usize {
  if (!Path.isVectorValid()) return failWith(Errno.EINVAL);
  return handleOrEnomem(changetype<usize>(Ah.create(changetype<Pd>(pd))));
}
/** Takes another next hop, from the address vector at scratch(), whose other fields are as before. */
export function ahReroute(ah: usize): void {
  changetype<Ah>(ah).path.load(false);
}
/** EBUSY while a pending send work request refers to it. */
export function ahDestroy(ah: usize): u32 {
  return changetype<Ah>(ah).destroy();
}
/**
 * Attaches a queue pair to the multicast group whose GID is at scratch(). EINVAL: no UD queue pair, or already
 * attached.
 */
export function mcastAttach(qp: usize): u32 {
  let pair = changetype<Qp>(qp);
  return pair.type == QpType.UD ? attach(pair, SCRATCH) : Errno.EINVAL;
}
/** ENOENT when the queue pair is not attached. */
export function mcastDetach(qp: usize): u32 {
  return detach(changetype<Qp>(qp), SCRATCH);
}

// ---- queue pairs ----
/**
 * EBUSY when there already is a GSI queue pair.
 * @param srq a shared receive queue; 0 = a receive queue of its own
 */
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
  srq: usize,
): usize {
  let init = changetype<QpInit>(SCRATCH);
  init.type = type;
  init.sendWr = maxSendWr;
  init.recvWr = maxRecvWr;
  init.sendSge = maxSendSge;
  init.recvSge = maxRecvSge;
  init.inline = maxInline;
  init.signalAll = signalAll;
  let refused = init.check();
  if (refused != Errno.OK) return failWith(refused);
  let shared = changetype<RecvQueue>(srq);
  return handleOrEnomem(createQp(changetype<Pd>(pd), changetype<Cq>(sendCq), changetype<Cq>(recvCq), shared, init).ptr);
}
/** Limits the requests of its shared receive queue that the queue pair may hold; 0 = no limit. */
export function qpRecvQuota(qp: usize, quota: u32): void {
  changetype<Qp>(qp).recvQuota = quota;
}
export function qpDestroy(qp: usize): u32 {
  destroyQp(changetype<Qp>(qp));
  return Errno.OK;
}
export function qpNumber(qp: usize): u32 {
  return changetype<Qp>(qp).qpn;
}
/** Returns the QpState. */
export function qpState(qp: usize): u32 {
  return changetype<Qp>(qp).state;
}
/** Sets the Quirk bits of the peer. */
export function qpQuirks(qp: usize, quirks: u32): void {
  changetype<Qp>(qp).quirks = quirks;
}
/** Switches end-to-end flow control (credits) on or off, at any time; initially off. EINVAL: RC queue pairs only. */
export function qpFlowControl(qp: usize, isOn: bool): u32 {
  let pair = changetype<Qp>(qp);
  if (pair.type != QpType.RC) return Errno.EINVAL;
  setFlowControl(pair, isOn);
  return Errno.OK;
}
/** Switches adaptive retransmission on or off, at any time; initially on. EINVAL: RC queue pairs only. */
export function qpAdaptive(qp: usize, isOn: bool): u32 {
  let pair = changetype<Qp>(qp);
  if (pair.type != QpType.RC) return Errno.EINVAL;
  setAdaptive(pair, isOn);
  return Errno.OK;
}
/**
 * Returns the sign of an RC queue pair's peer since the last call: a `PeerSign`. A silent peer is sent a keep-alive if
 * `asks` says so.
 */
export function qpPeerSign(qp: usize, asks: bool): u32 {
  return takeSign(changetype<Qp>(qp), asks);
}
/**
 * Writes the frame of a datagram that the caller sends itself, if at all. The message, `bytes` long, is at scratch(),
 * the frame at scratch() + 2048, with a UDP source port, 0 for that of the path. Returns its length, or 0 with EINVAL
 * if the message is longer than 1024 bytes or no multiple of four, or the port is out of range.
 */
export function qpWriteDatagram(
  qp: usize,
  ah: usize,
  pkeyIndex: u32,
  destQpn: u32,
  qkey: u32,
  bytes: u32,
  sourcePort: u32,
): u32 {
  if (bytes > 1024 || (bytes & 3) != 0 || sourcePort > 65535) {
    failWith(Errno.EINVAL);
    return 0;
  }
  let path = changetype<Ah>(ah).path;
  let frame = SCRATCH + 2048;
  let pkey = pkeyAt(pkeyIndex);
  return writeDatagram(changetype<Qp>(qp), path, pkey, destQpn, qkey, SCRATCH, bytes, frame, sourcePort);
}
/**
 * Limits the in-flight window to 1 to MAX_WINDOW packets, at any time; initially MAX_WINDOW. EINVAL: RC queue pairs
 * only, or a limit out of range.
 */
export function qpWindowLimit(qp: usize, packets: u32): u32 {
  let pair = changetype<Qp>(qp);
  if (pair.type != QpType.RC || packets == 0 || packets > MAX_WINDOW) return Errno.EINVAL;
  limitWindow(pair, packets);
  return Errno.OK;
}
/** Returns a random PSN for SQ_PSN. */
export function randomPsn(): u32 {
  return random32() & 0xffffff;
}
/**
 * Modifies the attributes that `mask` names, from scratch(). Refused with EINVAL, nothing changes, and qpRefused()
 * returns the attributes at fault: missing, not allowed in this transition, or with a value out of range.
 */
export function qpModify(qp: usize, mask: u32): u32 {
  return modifyQp(changetype<Qp>(qp), mask);
}
/** Takes another next hop, from the address vector at scratch(), whose other fields are as before. */
export function qpReroute(qp: usize): void {
  changetype<Qp>(qp).path.load(true);
}
/** Returns the attributes that the last refused qpModify lacked (0), did not allow (1), or found out of range (2). */
export function qpRefused(why: u32): u32 {
  let card = Card.get();
  return why == 0 ? card.refusedMissing : why == 1 ? card.refusedForbidden : card.refusedRange;
}
/** Writes all attributes to scratch(). */
export function qpQuery(qp: usize): void {
  queryQp(changetype<Qp>(qp));
}

/** Returns the table of keys, or null when it is full. */
function keysWithRoom(): Table {
  let keys = Card.get().keys;
  return keys.isFull ? changetype<Table>(0) : keys;
}

function mrHandle(mr: Mr): usize {
  return handleOrEnomem(mr.handle);
}
