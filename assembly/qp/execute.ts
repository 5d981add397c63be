// Executes a request that has passed all checks: moves the data, advances ePSN and MSN, completes the receive WQE.

import { Access, Errno, WcStatus } from '../codes';
import { Counter } from '../counters';
import { Card } from '../host/card';
import { Mr } from '../host/mr';
import { compareSwapAt, fetchAddAt, originalValue, placeAt, storeAt } from '../host/place';
import { scatter } from '../host/wqe';
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
import { Fault } from './check';
import { completeRecv } from './completion';
import { consumeCredit } from './credit';
import { takeRecvWqe } from './flush';
import { Expect, Qp } from './qp';
import { activate, allocateResource, RespResource } from './resource';

export function execute(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  if (isSend(opcode)) return executeSend(qp, packet);
  if (isWrite(opcode)) return executeWrite(qp, packet);
  if (isRead(opcode)) return executeRead(qp, packet);
  return isAtomic(opcode) ? executeAtomic(qp, packet) : executeWithEmptyResponse(qp, packet);
}

function executeSend(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  takeRecvWqe(qp);
  let wqe = qp.recvWqe;
  if (isFirst(opcode)) qp.receivedBytes = 0;
  if (
    !scatter(Card.get().keys, qp.recvPd, wqe.sges, wqe.sgeCount, qp.receivedBytes, packet.payload, packet.payloadBytes)
  )
    return Fault.LOCAL_PROTECTION;
  qp.receivedBytes += packet.payloadBytes;
  qp.expect = Expect.SEND;
  if (isLast(opcode)) {
    if (hasInvalidate(opcode) && Mr.invalidate(Card.get().keys, packet.invalidateRkey, qp.pd, qp.qpn) != Errno.OK)
      return Fault.INVALIDATE;
    endMessage(qp);
    consumeCredit(qp);
    completeRecv(qp, packet, qp.receivedBytes, WcStatus.SUCCESS);
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
  if (bytes != 0 && !placeAt(packet.target, packet.payload, bytes)) return Fault.RKEY;
  qp.writeVa += bytes;
  qp.writeLeft -= bytes;
  qp.expect = Expect.WRITE;
  if (isLast(opcode)) {
    endMessage(qp);
    if (hasImm(opcode)) {
      consumeCredit(qp);
      completeRecv(qp, packet, qp.writeLength, WcStatus.SUCCESS);
    }
  }
  qp.ePsn = psnAdd(qp.ePsn, 1);
  return Fault.NONE;
}

function executeRead(qp: Qp, packet: Packet): Fault {
  let resource = allocateResource(qp);
  if (changetype<usize>(resource) == 0) return Fault.TOO_MANY_RD_ATOMIC;
  let reth = packet.reth;
  let packets = packetCount(reth.length, qp.mtu);
  resource.va = reth.va;
  resource.rkey = reth.rkey;
  resource.length = reth.length;
  resource.firstPsn = packet.psn;
  resource.lastPsn = psnAdd(packet.psn, packets - 1);
  startReadResponse(qp, resource, packet);
  qp.ePsn = psnAdd(packet.psn, packets);
  endMessage(qp);
  qp.count(Counter.rx_read_requests);
  return Fault.NONE;
}

/** Returns the place of a part of a READ response as it is now; 0 = the peer may not, or no longer, read it. */
export function resolveRead(qp: Qp, rkey: u32, va: u64, bytes: u32): u64 {
  return Mr.resolveRemote(Card.get().keys, rkey, qp.pd, qp.qpn, va, bytes, Access.REMOTE_READ);
}

/** Starts the response to a READ request, which may ask for the rest of an earlier READ. */
export function startReadResponse(qp: Qp, resource: RespResource, packet: Packet): void {
  let reth = packet.reth;
  resource.responseFirstPsn = packet.psn;
  resource.responsePsn = packet.psn;
  resource.responseLastPsn = psnAdd(packet.psn, packetCount(reth.length, qp.mtu) - 1);
  resource.responseVa = reth.va;
  resource.responseLength = reth.length;
  activate(qp, resource);
}

function executeAtomic(qp: Qp, packet: Packet): Fault {
  let resource = allocateResource(qp);
  if (changetype<usize>(resource) == 0) return Fault.TOO_MANY_RD_ATOMIC;
  let eth = packet.atomicEth;
  let place = Mr.resolveRemote(Card.get().keys, eth.rkey, qp.pd, qp.qpn, eth.va, 8, Access.REMOTE_ATOMIC);
  resource.isAtomic = true;
  resource.firstPsn = resource.lastPsn = packet.psn;
  let isDone =
    packet.opcode == Opcode.COMPARE_SWAP
      ? compareSwapAt(place, eth.compare, eth.swapAdd)
      : fetchAddAt(place, eth.swapAdd);
  if (!isDone) return Fault.RKEY;
  resource.original = originalValue();
  activate(qp, resource);
  qp.ePsn = psnAdd(qp.ePsn, 1);
  endMessage(qp);
  qp.count(Counter.rx_atomic_requests);
  return Fault.NONE;
}

/**
 * ATOMIC WRITE and FLUSH, whose response is a READ response without data. Earlier writes are already placed in memory
 * that all threads see, so a FLUSH has nothing left to do.
 */
function executeWithEmptyResponse(qp: Qp, packet: Packet): Fault {
  let resource = allocateResource(qp);
  // a peer may not count its FLUSHes (rxe does not): the NAK makes it retransmit this one later
  if (changetype<usize>(resource) == 0) return isFlush(packet.opcode) ? Fault.NO_RESOURCE : Fault.TOO_MANY_RD_ATOMIC;
  resource.isEmptyResponse = true;
  resource.firstPsn = resource.lastPsn = packet.psn;
  if (isAtomicWrite(packet.opcode)) {
    let place = Mr.resolveRemote(
      Card.get().keys,
      packet.reth.rkey,
      qp.pd,
      qp.qpn,
      packet.reth.va,
      8,
      Access.REMOTE_WRITE,
    );
    if (!storeAt(place, load<u64>(packet.payload))) return Fault.RKEY;
  }
  startEmptyResponse(qp, resource);
  qp.ePsn = psnAdd(qp.ePsn, 1);
  endMessage(qp);
  return Fault.NONE;
}

/** Starts a response without data. */
export function startEmptyResponse(qp: Qp, resource: RespResource): void {
  resource.responseFirstPsn = resource.responsePsn = resource.responseLastPsn = resource.firstPsn;
  activate(qp, resource);
}

function endMessage(qp: Qp): void {
  qp.expect = Expect.FIRST;
  qp.msn = psnAdd(qp.msn, 1);
}
