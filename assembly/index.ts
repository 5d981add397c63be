// The card's exports. Every pointer is an offset in the card's memory; handles are pointers to the card's objects.
// A call that can be refused answers an Errno, or handle 0 with the reason in lastErrno().
//
// Two threads may share a card, each with an instance of this module on the same memory: one takes the turns (rx, expire,
// tx), the other is the user. Whatever is exported here must then be called by one of them at a time, but for what only reads
// a constant or the user's own state: scratch, lastErrno, counters, qpCounters, qpNumber, mrLkey, mrRkey, fastLkey. What is
// exported by posting.ts the user may call at any time.

import { handle, join, refused } from './calls';
import { Card } from './host/card';
import { Cq } from './host/cq';
import { setGids } from './host/gid';
import { Mr } from './host/mr';
import { parameter, setParameter } from './host/parameter';
import { Pd } from './host/pd';
import { pkeyAt, setPkeyTable } from './host/pkey';
import { allocateAligned, available, release } from './host/pool';
import { random32 } from './host/random';
import { RecvQueue } from './host/rq';
import { Table } from './host/table';
import { COUNTERS, Errno, GSI_QPN, MAX_CQE, MAX_INLINE, MAX_SGE, MAX_WR, MwType, QpType, SCRATCH } from './limits';
import { setAdaptive } from './qp/adaptive';
import { Ah } from './qp/ah';
import { createQp, destroyQp, Sizes } from './qp/create';
import { setFlowControl } from './qp/credit';
import { attach, detach } from './qp/multicast';
import { Path } from './qp/path';
import { Qp } from './qp/qp';
import { query } from './qp/query';
import { Run } from './qp/run';
import { modify } from './qp/state';
import { earliest } from './qp/timer';
import { expireTimers, openCard, receiveFrames, registerMr, transmitFrames } from './rnic';

export { Counter } from './counters';
export * from './layout';
export * from './limits';
export * from './posting';
export { Syndrome } from './wire/aeth';
export { Opcode } from './wire/opcode';

// ---- the card ----
/** 4 KiB through which seeds, addresses and attributes are handed over. */
export function scratch(): usize {
  return SCRATCH;
}
export function lastErrno(): u32 {
  return Card.get().lastErrno;
}
/** Lays out the memory and makes the card ready. A 32-byte seed lies at scratch(); all keys, QPNs and PSNs come from it. */
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
/** What the link promises: LinkFlag bits, its UDP source port where that is fixed, and how many packets and bytes of UDP
 * payload of a run it sends in one go; 0 packets = it knows no runs. */
export function setLink(flags: u32, sourcePort: u32, runPackets: u32, runBytes: u32): void {
  let card = Card.get();
  card.linkFlags = flags;
  card.linkSourcePort = sourcePort;
  let run = Run.current();
  run.mostPackets = runPackets > 1 ? runPackets : 0;
  run.mostBytes = runBytes;
}
/** The port's addresses, as `gids` GIDs of 16 bytes at scratch(), and how many bytes of payload a datagram may have.
 * EINVAL when there are too many. */
export function setPort(gids: u32, mtu: u32): u32 {
  Card.get().portMtu = mtu;
  return setGids(SCRATCH, gids) ? Errno.OK : Errno.EINVAL;
}
/** The port's P_Keys, `count` u32 at scratch(); at first it has 0xffff only. What queue pairs have chosen before stays.
 * EINVAL: none, more than 128, or one that names no partition. */
export function setPkeys(count: u32): u32 {
  return setPkeyTable(SCRATCH, count) ? Errno.OK : Errno.EINVAL;
}
/** The P_Key at an index, or 0 when the table is shorter. */
export function pkey(index: u32): u32 {
  return pkeyAt(index);
}
/** Changes a CongestionParameter, for all queue pairs; ECT for those whose address vector is set from now on. */
export function setCongestion(which: u32, value: f64): void {
  setParameter(which, value);
}
export function congestion(which: u32): f64 {
  return parameter(which);
}
export function txRing(): usize {
  return changetype<usize>(Card.get().txRing);
}
export function rxRing(): usize {
  return changetype<usize>(Card.get().rxRing);
}

// ---- a turn: receive, expire, transmit. `now` in nanoseconds of any monotonic clock ----
/** Takes frames off the receive ring until they were `max` packets or more; answers how many packets. */
export function rx(now: f64, max: u32): u32 {
  return receiveFrames(<u64>now, max);
}
/** Lets every deadline that has passed take effect. */
export function expire(now: f64): void {
  expireTimers(<u64>now);
}
/** Puts up to `max` frames on the transmit ring; answers how many. */
export function tx(now: f64, max: u32): u32 {
  return transmitFrames(<u64>now, max);
}
/** When expire wants to be called next, in nanoseconds; 0 = nothing is waiting. May be early, is never late. */
export function nextDeadline(): f64 {
  return <f64>earliest();
}
/** Counters of the card and of one queue pair: u64 each, in the order of the enum Counter. */
export function counters(): usize {
  return COUNTERS;
}
export function qpCounters(qp: usize): usize {
  return changetype<Qp>(qp).counters;
}

// ---- memory, protection domains, regions ----
/** Zeroed memory for the user's data, 4 KiB aligned; 0 = none left. */
export function memAlloc(bytes: u32): usize {
  return allocateAligned(bytes, 4096);
}
export function memFree(ptr: usize): void {
  release(ptr);
}
export function memAvailable(): f64 {
  return <f64>available();
}
export function pdAlloc(): usize {
  return handle(changetype<usize>(Pd.create()));
}
export function pdFree(pd: usize): u32 {
  return changetype<Pd>(pd).destroy();
}
/** A region over memory of memAlloc; the wire knows it from address iova on. EINVAL: remote write or atomic without local write. */
export function mrReg(pd: usize, ptr: usize, length: u32, access: u32, iovaHigh: u32, iovaLow: u32): usize {
  return changetype<usize>(registerMr(changetype<Pd>(pd), ptr, length, access, join(iovaHigh, iovaLow)));
}
/** EBUSY while windows are bound to it. */
export function mrDereg(mr: usize): u32 {
  return changetype<Mr>(mr).destroy(Card.get().keys);
}
/** Registers anew, as mrReg would, under new keys; in a refusal (EINVAL, or EBUSY while windows are bound) all stays as it is. */
export function mrRereg(mr: usize, pd: usize, ptr: usize, length: u32, access: u32, iovaHigh: u32, iovaLow: u32): u32 {
  let keys = Card.get().keys;
  return changetype<Mr>(mr).registerAgain(keys, changetype<Pd>(pd), ptr, length, access, join(iovaHigh, iovaLow));
}
/** A region without memory, which a REG_MR work request registers. */
export function mrAllocFast(pd: usize): usize {
  return registered(Mr.createFast(tableWithRoom(), changetype<Pd>(pd)));
}
/** Whether its keys open anything: not those of a fast region that is not registered, nor of a window that is not bound. */
export function mrIsValid(mr: usize): bool {
  return changetype<Mr>(mr).isValid;
}
/** A memory window, MwType 1 or 2; mrRkey tells its key, mwFree takes it away. */
export function mwAlloc(pd: usize, type: u32): usize {
  if (type != MwType.TYPE_1 && type != MwType.TYPE_2) return refused(Errno.EINVAL);
  return registered(Mr.createWindow(tableWithRoom(), changetype<Pd>(pd), type));
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

/** The local key that REG_MR gives with this remote key. */
export function fastLkey(rkey: u32): u32 {
  return Mr.localKeyFor(rkey);
}

// ---- completion queues ----
export function cqCreate(cqe: u32): usize {
  return handle(cqe == 0 || cqe > MAX_CQE ? 0 : changetype<usize>(Cq.create(cqe, Card.get().events)));
}
/** For at least `cqe` completions; those that are pending stay. EINVAL when they would not fit, ENOMEM. */
export function cqResize(cq: usize, cqe: u32): u32 {
  return cqe == 0 || cqe > MAX_CQE ? Errno.EINVAL : changetype<Cq>(cq).resize(cqe);
}
/** Completions that are pending. */
export function cqFilled(cq: usize): u32 {
  return changetype<Cq>(cq).filled;
}
export function cqDestroy(cq: usize): u32 {
  return changetype<Cq>(cq).destroy();
}

// ---- shared receive queues ----
/** For at least `wr` requests of `sge` pieces. */
export function srqCreate(pd: usize, wr: u32, sge: u32): usize {
  if (wr == 0 || wr > MAX_WR || sge > MAX_SGE) return refused(Errno.EINVAL);
  let srq = RecvQueue.create(wr, sge);
  if (srq.ptr == 0) return refused(Errno.ENOMEM);
  srq.isShared = true;
  srq.pd = changetype<Pd>(pd);
  srq.pd.users++;
  return srq.ptr;
}
export function srqDestroy(srq: usize): u32 {
  let queue = changetype<RecvQueue>(srq);
  if (queue.users != 0) return Errno.EBUSY;
  queue.pd.users--;
  Card.get().events.forget(srq);
  queue.destroy();
  return Errno.OK;
}
/** One SRQ_LIMIT_REACHED event with the next request that is taken and leaves fewer than `limit`; 0 = none. */
export function srqLimit(srq: usize, limit: u32): u32 {
  let queue = changetype<RecvQueue>(srq);
  if (limit > queue.entries) return Errno.EINVAL;
  queue.limit = limit;
  return Errno.OK;
}
/** EINVAL when more is posted than fits, or the limit is higher. */
export function srqResize(srq: usize, wr: u32): u32 {
  let queue = changetype<RecvQueue>(srq);
  if (wr == 0 || wr > MAX_WR || wr < queue.filled || wr < queue.limit) return Errno.EINVAL;
  return queue.resize(wr) ? Errno.OK : Errno.ENOMEM;
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

// ---- address handles and multicast, for datagrams ----
/** From the address vector at scratch(). */
export function ahCreate(pd: usize): usize {
  if (!Path.isVectorValid()) return refused(Errno.EINVAL);
  return handle(changetype<usize>(Ah.create(changetype<Pd>(pd))));
}
/** EBUSY while a send work request that names it is not done. */
export function ahDestroy(ah: usize): u32 {
  return changetype<Ah>(ah).destroy();
}
/** The queue pair gets what is sent to the group whose GID is at scratch(). EINVAL: no datagram queue pair, or a member. */
export function mcastAttach(qp: usize): u32 {
  let pair = changetype<Qp>(qp);
  return pair.type == QpType.UD ? attach(pair, SCRATCH) : Errno.EINVAL;
}
/** ENOENT when it is no member. */
export function mcastDetach(qp: usize): u32 {
  return detach(changetype<Qp>(qp), SCRATCH);
}

// ---- queue pairs ----
/** EBUSY: there is a GSI already.
 * @param srq a shared receive queue; 0 = one of its own */
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
  if (type != QpType.RC && type != QpType.UC && type != QpType.UD && type != QpType.GSI)
    return refused(Errno.EOPNOTSUPP);
  if (type == QpType.GSI && Card.get().qps.find(GSI_QPN) != 0) return refused(Errno.EBUSY);
  if (maxSendWr == 0 || maxSendWr > MAX_WR || maxRecvWr > MAX_WR) return refused(Errno.EINVAL);
  if (maxSendSge > MAX_SGE || maxRecvSge > MAX_SGE || maxInline > MAX_INLINE) return refused(Errno.EINVAL);
  let sizes = changetype<Sizes>(SCRATCH);
  sizes.sendWr = maxSendWr;
  sizes.recvWr = maxRecvWr;
  sizes.sendSge = maxSendSge;
  sizes.recvSge = maxRecvSge;
  sizes.inline = maxInline;
  let shared = changetype<RecvQueue>(srq);
  let qp = createQp(changetype<Pd>(pd), type, changetype<Cq>(sendCq), changetype<Cq>(recvCq), shared, sizes);
  if (qp.ptr == 0) return refused(Errno.ENOMEM);
  qp.signalAll = signalAll;
  return qp.ptr;
}
export function qpDestroy(qp: usize): u32 {
  destroyQp(changetype<Qp>(qp));
  return Errno.OK;
}
export function qpNumber(qp: usize): u32 {
  return changetype<Qp>(qp).qpn;
}
/** Quirk bits of the peer. */
export function qpQuirks(qp: usize, quirks: u32): void {
  changetype<Qp>(qp).quirks = quirks;
}
/** End-to-end flow control by credits on or off, at any time; off at first. EINVAL: for reliable connections only. */
export function qpFlowControl(qp: usize, isOn: bool): u32 {
  let pair = changetype<Qp>(qp);
  if (pair.type != QpType.RC) return Errno.EINVAL;
  setFlowControl(pair, isOn);
  return Errno.OK;
}
/** Adaptive retransmission on or off, at any time; on at first. EINVAL: for reliable connections only. */
export function qpAdaptive(qp: usize, isOn: bool): u32 {
  let pair = changetype<Qp>(qp);
  if (pair.type != QpType.RC) return Errno.EINVAL;
  setAdaptive(pair, isOn);
  return Errno.OK;
}
/** A random PSN for SQ_PSN. */
export function randomPsn(): u32 {
  return random32() & 0xffffff;
}
/** Attributes at scratch(), `mask` names those that count. Refused: EINVAL, and qpRefused() has the bits at fault:
 * missing, not allowed in this transition, or with a value out of range. Nothing is changed then. */
export function qpModify(qp: usize, mask: u32): u32 {
  return modify(changetype<Qp>(qp), mask);
}
/** Bits of the attributes that the last refused qpModify missed (0), would not allow (1), or found out of range (2). */
export function qpRefused(why: u32): u32 {
  let card = Card.get();
  return why == 0 ? card.refusedMissing : why == 1 ? card.refusedForbidden : card.refusedRange;
}
/** Writes all attributes to scratch(). */
export function qpQuery(qp: usize): void {
  query(changetype<Qp>(qp));
}

/** Keys with room for one more, or null. */
function tableWithRoom(): Table {
  let keys = Card.get().keys;
  return keys.isFull ? changetype<Table>(0) : keys;
}

function registered(mr: Mr): usize {
  return handle(mr.address);
}
