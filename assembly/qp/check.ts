// Checks of a request before it changes anything (IBTA 9.7.4.1), in the order of the specification. The first check
// that fails determines the fault.

import { Access, FlushPlacement, FlushSelectivity, Quirk } from '../codes';
import { Card } from '../host/card';
import { Mr } from '../host/mr';
import { MAX_MESSAGE } from '../limits';
import {
  hasImm,
  isAnswered,
  isAtomic,
  isAtomicWrite,
  isFirst,
  isFlush,
  isLast,
  isRead,
  isReserved,
  isSend,
  isWrite,
} from '../wire/opcode';
import { Packet } from '../wire/packet';
import { Expect, Qp } from './qp';
import { hasRecvWqeFor } from './quota';

/** Reasons to reject a request. */
export enum Fault {
  NONE,
  /** NAK invalid request. */
  RESERVED_OPCODE,
  OPCODE_SEQUENCE,
  NOT_ENABLED,
  TOO_MANY_RD_ATOMIC,
  LENGTH,
  MISALIGNED,
  /** NAK remote access error. */
  RKEY,
  /** NAK remote operational error. */
  LOCAL_PROTECTION,
  /** RNR NAK. */
  RNR,
  /** Treated like a lost packet: NAK sequence error. */
  NO_RESOURCE,
  /** No NAK: the message has arrived, but its key cannot be invalidated. */
  INVALIDATE,
}

/** Checks a packet that has the expected PSN. */
export function check(qp: Qp, packet: Packet): Fault {
  let fault = checkSequence(qp, packet.opcode);
  if (fault == Fault.NONE) fault = checkQpAccess(qp, packet);
  if (fault == Fault.NONE) fault = checkResources(qp, packet.opcode);
  if (fault == Fault.NONE) fault = checkLength(qp, packet);
  if (fault == Fault.NONE) fault = checkRkey(qp, packet);
  return fault;
}

/** IBTA 9.7.4.1.3 */
function checkSequence(qp: Qp, opcode: u32): Fault {
  if (isReserved(opcode)) return Fault.RESERVED_OPCODE;
  let expected = isFirst(opcode) ? Expect.FIRST : isSend(opcode) ? Expect.SEND : Expect.WRITE;
  return qp.expect == expected ? Fault.NONE : Fault.OPCODE_SEQUENCE;
}

function accessFor(opcode: u32): u32 {
  if (isWrite(opcode)) return Access.REMOTE_WRITE;
  if (isRead(opcode)) return Access.REMOTE_READ;
  if (isAtomicWrite(opcode)) return Access.REMOTE_WRITE;
  return isAtomic(opcode) ? Access.REMOTE_ATOMIC : 0;
}

function checkQpAccess(qp: Qp, packet: Packet): Fault {
  let right = isFlush(packet.opcode) ? flushAccess(packet.feth.placement) : accessFor(packet.opcode);
  return (qp.access & right) == right ? Fault.NONE : Fault.NOT_ENABLED;
}

/** The card's memory ends with the process, so no region grants this right. */
const FLUSH_PERSISTENT: u32 = 512;

function flushAccess(placement: u32): u32 {
  return (
    (placement & FlushPlacement.GLOBAL ? Access.FLUSH_GLOBAL : 0) |
    (placement & FlushPlacement.PERSISTENT ? FLUSH_PERSISTENT : 0)
  );
}

function isFlushValid(packet: Packet): bool {
  let feth = packet.feth;
  return feth.placement != 0 && feth.placement < 4 && feth.selectivity <= <u32>FlushSelectivity.MR;
}

/** A FLUSH of a whole region has no range (IBTA A19.4.4). */
function checkFlushRkey(qp: Qp, packet: Packet): Fault {
  let keys = Card.get().keys;
  let reth = packet.reth;
  let right = flushAccess(packet.feth.placement);
  let isRepeated = reth.va == 0 && (qp.quirks & Quirk.RXE_FLUSH_ADDRESS) != 0;
  let isValid =
    packet.feth.selectivity == FlushSelectivity.MR || isRepeated
      ? Mr.isRkeyValid(keys, reth.rkey, qp.pd, qp.qpn, right)
      : Mr.resolveRemote(keys, reth.rkey, qp.pd, qp.qpn, reth.va, reth.length, right) != 0;
  return isValid ? Fault.NONE : Fault.RKEY;
}

/**
 * Returns whether this packet needs a receive WQE: the first packet of a SEND, or a WRITE packet with immediate data.
 */
function needsRecvWqe(opcode: u32): bool {
  return isSend(opcode) ? isFirst(opcode) : isWrite(opcode) && hasImm(opcode);
}

function checkResources(qp: Qp, opcode: u32): Fault {
  if (isAnswered(opcode) && qp.maxDestRdAtomic == 0) return Fault.TOO_MANY_RD_ATOMIC;
  return needsRecvWqe(opcode) && !qp.hasRecvWqe && !hasRecvWqeFor(qp) ? Fault.RNR : Fault.NONE;
}

/** IBTA 9.7.4.1.6 */
function checkLength(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  let bytes = packet.payloadBytes;
  if (isRead(opcode)) return packet.reth.length > MAX_MESSAGE ? Fault.LENGTH : Fault.NONE;
  if (isAtomic(opcode)) return packet.atomicEth.va & 7 ? Fault.MISALIGNED : Fault.NONE;
  if (isFlush(opcode)) return isFlushValid(packet) ? Fault.NONE : Fault.LENGTH;
  if (isAtomicWrite(opcode)) {
    if (packet.reth.length != 8 || bytes != 8) return Fault.LENGTH;
    return packet.reth.va & 7 ? Fault.MISALIGNED : Fault.NONE;
  }
  if (!isLast(opcode)) {
    if (bytes != qp.mtu) return Fault.LENGTH;
  } else if (bytes > qp.mtu || (bytes == 0 && !isFirst(opcode))) {
    return Fault.LENGTH;
  }
  if (isSend(opcode)) {
    let before: u32 = isFirst(opcode) ? 0 : qp.receivedBytes;
    let room = qp.hasRecvWqe ? qp.recvWqe.length : qp.rq.oldest.length;
    return <u64>before + <u64>bytes > <u64>room ? Fault.LENGTH : Fault.NONE;
  }
  let left = isFirst(opcode) ? packet.reth.length : qp.writeLeft;
  if (left > MAX_MESSAGE) return Fault.LENGTH;
  return (isLast(opcode) ? bytes == left : bytes < left) ? Fault.NONE : Fault.LENGTH;
}

/** IBTA 9.7.4.1.5. A message without data accesses no memory, so its key is not checked. */
function checkRkey(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  let keys = Card.get().keys;
  if (isAtomic(opcode)) {
    let eth = packet.atomicEth;
    return Mr.resolveRemote(keys, eth.rkey, qp.pd, qp.qpn, eth.va, 8, Access.REMOTE_ATOMIC) != 0
      ? Fault.NONE
      : Fault.RKEY;
  }
  if (isSend(opcode)) return Fault.NONE;
  if (isFlush(opcode)) return checkFlushRkey(qp, packet);
  let right = accessFor(opcode);
  if (isFirst(opcode)) {
    let reth = packet.reth;
    let length = reth.length;
    if (length == 0) return Fault.NONE;
    packet.target = Mr.resolveRemote(keys, reth.rkey, qp.pd, qp.qpn, reth.va, length, right);
  } else {
    // the region may have been deregistered since the first packet
    packet.target = Mr.resolveRemote(keys, qp.writeRkey, qp.pd, qp.qpn, qp.writeVa, qp.writeLeft, right);
  }
  return packet.target != 0 ? Fault.NONE : Fault.RKEY;
}
