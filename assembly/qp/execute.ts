// Carries out a request that has passed all checks: moves the data, moves on ePSN and MSN, completes the receive work request.
import { Counter } from '../counters';
import { Card } from '../host/card';
import { Mr } from '../host/mr';
import { scatter } from '../host/wqe';
import { Access, Errno, WcStatus } from '../limits';
import {
  hasImm,
  hasInvalidate,
  isAtomic,
  isAtomicWrite,
  isFirst,
  isFlush,
  isLast,
  isRead,
  isSend,
  isWrite,
  Opcode,
} from '../wire/opcode';
import { Packet } from '../wire/packet';
import { packetCount, psnAdd } from '../wire/psn';
import { completeRecv, hold } from './complete';
import { useCredit } from './credit';
import { Fault } from './examine';
import { Expect, Qp } from './qp';
import { activate, newResult, Result } from './result';

export function execute(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  if (isSend(opcode)) return executeSend(qp, packet);
  if (isWrite(opcode)) return executeWrite(qp, packet);
  if (isRead(opcode)) return executeRead(qp, packet);
  return isAtomic(opcode) ? executeAtomic(qp, packet) : executeBlank(qp, packet);
}

function executeSend(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  hold(qp);
  let wqe = qp.held;
  if (isFirst(opcode)) qp.received = 0;
  if (!scatter(Card.get().keys, qp.recvPd, wqe.pieces, wqe.sgeCount, qp.received, packet.payload, packet.payloadBytes))
    return Fault.LOCAL_MEMORY;
  qp.received += packet.payloadBytes;
  qp.expect = Expect.SEND;
  if (isLast(opcode)) {
    if (hasInvalidate(opcode) && Mr.invalidate(Card.get().keys, packet.invalidateRkey, qp.pd, qp.qpn) != Errno.OK)
      return Fault.INVALIDATE;
    endMessage(qp);
    useCredit(qp);
    completeRecv(qp, packet, qp.received, WcStatus.SUCCESS);
    qp.count(Counter.rdma_recvs);
  }
  qp.ePsn = psnAdd(qp.ePsn, 1);
  return Fault.NONE;
}

function executeWrite(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  if (isFirst(opcode)) {
    qp.writeVa = packet.reth.va;
    qp.writeRkey = packet.reth.rkey;
    qp.writeLeft = qp.writeLength = packet.reth.length;
    qp.count(Counter.rx_write_requests);
  }
  let bytes = packet.payloadBytes;
  if (bytes != 0) memory.copy(packet.target, packet.payload, bytes);
  qp.writeVa += bytes;
  qp.writeLeft -= bytes;
  qp.expect = Expect.WRITE;
  if (isLast(opcode)) {
    endMessage(qp);
    if (hasImm(opcode)) {
      useCredit(qp);
      completeRecv(qp, packet, qp.writeLength, WcStatus.SUCCESS);
    }
  }
  qp.ePsn = psnAdd(qp.ePsn, 1);
  return Fault.NONE;
}

function executeRead(qp: Qp, packet: Packet): Fault {
  let result = newResult(qp);
  if (changetype<usize>(result) == 0) return Fault.TOO_MANY;
  let reth = packet.reth;
  let packets = packetCount(reth.length, qp.mtu);
  result.va = reth.va;
  result.rkey = reth.rkey;
  result.length = reth.length;
  result.firstPsn = packet.psn;
  result.lastPsn = psnAdd(packet.psn, packets - 1);
  startJob(qp, result, packet);
  qp.ePsn = psnAdd(packet.psn, packets);
  endMessage(qp);
  qp.count(Counter.rx_read_requests);
  return Fault.NONE;
}

/** The answer to this READ request, which may be for the rest of an earlier one, is to be sent. */
export function startJob(qp: Qp, result: Result, packet: Packet): void {
  let reth = packet.reth;
  result.jobFirst = packet.psn;
  result.jobNext = packet.psn;
  result.jobLast = psnAdd(packet.psn, packetCount(reth.length, qp.mtu) - 1);
  result.jobVa = reth.va;
  result.jobLength = reth.length;
  activate(qp, result);
}

function executeAtomic(qp: Qp, packet: Packet): Fault {
  let result = newResult(qp);
  if (changetype<usize>(result) == 0) return Fault.TOO_MANY;
  let eth = packet.atomicEth;
  let ptr = Mr.remote(Card.get().keys, eth.rkey, qp.pd, qp.qpn, eth.va, 8, Access.REMOTE_ATOMIC);
  result.isAtomic = true;
  result.firstPsn = result.lastPsn = packet.psn;
  result.original =
    packet.opcode == Opcode.COMPARE_SWAP ? compareSwap(ptr, eth.compare, eth.swapAdd) : fetchAdd(ptr, eth.swapAdd);
  activate(qp, result);
  qp.ePsn = psnAdd(qp.ePsn, 1);
  endMessage(qp);
  qp.count(Counter.rx_atomic_requests);
  return Fault.NONE;
}

/** ATOMIC WRITE and FLUSH: answered with a READ response without data. Everything before them has been placed already, in
 * memory that all threads see: a FLUSH has nothing left to do. */
function executeBlank(qp: Qp, packet: Packet): Fault {
  let result = newResult(qp);
  // a peer may not count its FLUSHes (rxe does not): it is asked to come back with this one
  if (changetype<usize>(result) == 0) return isFlush(packet.opcode) ? Fault.NO_ROOM : Fault.TOO_MANY;
  if (isAtomicWrite(packet.opcode)) {
    let ptr = Mr.remote(Card.get().keys, packet.reth.rkey, qp.pd, qp.qpn, packet.reth.va, 8, Access.REMOTE_WRITE);
    let value = load<u64>(packet.payload);
    if ((ptr & 7) == 0) atomic.store<u64>(ptr, value);
    else store<u64>(ptr, value);
  }
  result.isBlank = true;
  result.firstPsn = result.lastPsn = packet.psn;
  startBlank(qp, result);
  qp.ePsn = psnAdd(qp.ePsn, 1);
  endMessage(qp);
  return Fault.NONE;
}

/** An answer without data is to be sent. */
export function startBlank(qp: Qp, result: Result): void {
  result.jobFirst = result.jobNext = result.jobLast = result.firstPsn;
  activate(qp, result);
}

/** Atomic also against other threads where the memory is aligned; a region may map an aligned address to any pointer. */
function compareSwap(ptr: usize, compare: u64, swap: u64): u64 {
  if ((ptr & 7) == 0) return atomic.cmpxchg<u64>(ptr, compare, swap);
  let original = load<u64>(ptr);
  if (original == compare) store<u64>(ptr, swap);
  return original;
}

function fetchAdd(ptr: usize, add: u64): u64 {
  if ((ptr & 7) == 0) return atomic.add<u64>(ptr, add);
  let original = load<u64>(ptr);
  store<u64>(ptr, original + add);
  return original;
}

function endMessage(qp: Qp): void {
  qp.expect = Expect.FIRST;
  qp.msn = psnAdd(qp.msn, 1);
}
