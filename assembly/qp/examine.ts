// What a request must pass before anything is changed by it (IBTA 9.7.4.1): a ladder of checks in the order of the
// specification. The first that fails names the fault.
import { Card } from '../host/card';
import { Mr } from '../host/mr';
import { Access, FlushPlacement, FlushSelectivity, MAX_MESSAGE, Quirk } from '../limits';
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

/** Why a request is not carried out. */
export enum Fault {
  NONE,
  /** NAK invalid request. */
  RESERVED_OPCODE,
  OPCODE_SEQUENCE,
  NOT_ENABLED,
  TOO_MANY,
  LENGTH,
  MISALIGNED,
  /** NAK remote access error. */
  KEY,
  /** NAK remote operational error. */
  LOCAL_MEMORY,
  /** RNR NAK. */
  NOT_READY,
  /** As if it had been lost: NAK sequence error. */
  NO_ROOM,
  /** Nothing is said: the message has arrived, its key cannot be closed. */
  INVALIDATE,
}

/** The packet with the PSN that is expected, before anything is changed by it. */
export function examine(qp: Qp, packet: Packet): Fault {
  let fault = checkSequence(qp, packet.opcode);
  if (fault == Fault.NONE) fault = checkEnabled(qp, packet);
  if (fault == Fault.NONE) fault = checkResources(qp, packet.opcode);
  if (fault == Fault.NONE) fault = checkLength(qp, packet);
  if (fault == Fault.NONE) fault = checkKey(qp, packet);
  return fault;
}

/** IBTA 9.7.4.1.3 */
function checkSequence(qp: Qp, opcode: u32): Fault {
  if (isReserved(opcode)) return Fault.RESERVED_OPCODE;
  let expected = isFirst(opcode) ? Expect.FIRST : isSend(opcode) ? Expect.SEND : Expect.WRITE;
  return qp.expect == expected ? Fault.NONE : Fault.OPCODE_SEQUENCE;
}

function rightFor(opcode: u32): u32 {
  if (isWrite(opcode)) return Access.REMOTE_WRITE;
  if (isRead(opcode)) return Access.REMOTE_READ;
  if (isAtomicWrite(opcode)) return Access.REMOTE_WRITE;
  return isAtomic(opcode) ? Access.REMOTE_ATOMIC : 0;
}

function checkEnabled(qp: Qp, packet: Packet): Fault {
  let right = isFlush(packet.opcode) ? flushRight(packet.feth.placement) : rightFor(packet.opcode);
  return (qp.access & right) == right ? Fault.NONE : Fault.NOT_ENABLED;
}

/** Our memory does not outlive the process: nobody has the right to make it persistent. */
const FLUSH_PERSISTENT: u32 = 512;

function flushRight(placement: u32): u32 {
  return (
    (placement & FlushPlacement.GLOBAL ? Access.FLUSH_GLOBAL : 0) |
    (placement & FlushPlacement.PERSISTENT ? FLUSH_PERSISTENT : 0)
  );
}

function isFlushKnown(packet: Packet): bool {
  let feth = packet.feth;
  return feth.placement != 0 && feth.placement < 4 && feth.selectivity <= <u32>FlushSelectivity.MR;
}

/** A FLUSH of a whole region names no range (IBTA A19.4.4). */
function checkFlushKey(qp: Qp, packet: Packet): Fault {
  let keys = Card.get().keys;
  let reth = packet.reth;
  let right = flushRight(packet.feth.placement);
  let isRepeated = reth.va == 0 && (qp.quirks & Quirk.RXE_FLUSH_ADDRESS) != 0;
  let open =
    packet.feth.selectivity == FlushSelectivity.MR || isRepeated
      ? Mr.isOpen(keys, reth.rkey, qp.pd, qp.qpn, right)
      : Mr.remote(keys, reth.rkey, qp.pd, qp.qpn, reth.va, reth.length, right) != 0;
  return open ? Fault.NONE : Fault.KEY;
}

/** Whether this packet needs a receive work request: a SEND with its first packet, a WRITE with its immediate data. */
function takesReceive(opcode: u32): bool {
  return isSend(opcode) ? isFirst(opcode) : isWrite(opcode) && hasImm(opcode);
}

function checkResources(qp: Qp, opcode: u32): Fault {
  if (isAnswered(opcode) && qp.maxDestRdAtomic == 0) return Fault.TOO_MANY;
  return takesReceive(opcode) && !qp.isHeld && qp.rq.isEmpty ? Fault.NOT_READY : Fault.NONE;
}

/** IBTA 9.7.4.1.6 */
function checkLength(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  let bytes = packet.payloadBytes;
  if (isRead(opcode)) return packet.reth.length > MAX_MESSAGE ? Fault.LENGTH : Fault.NONE;
  if (isAtomic(opcode)) return packet.atomicEth.va & 7 ? Fault.MISALIGNED : Fault.NONE;
  if (isFlush(opcode)) return isFlushKnown(packet) ? Fault.NONE : Fault.LENGTH;
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
    let before: u32 = isFirst(opcode) ? 0 : qp.received;
    let room = qp.isHeld ? qp.held.length : qp.rq.oldest.length;
    return <u64>before + <u64>bytes > <u64>room ? Fault.LENGTH : Fault.NONE;
  }
  let left = isFirst(opcode) ? packet.reth.length : qp.writeLeft;
  if (left > MAX_MESSAGE) return Fault.LENGTH;
  return (isLast(opcode) ? bytes == left : bytes < left) ? Fault.NONE : Fault.LENGTH;
}

/** IBTA 9.7.4.1.5. A message without bytes touches no memory, so its key is not looked at. */
function checkKey(qp: Qp, packet: Packet): Fault {
  let opcode = packet.opcode;
  let keys = Card.get().keys;
  if (isAtomic(opcode)) {
    let eth = packet.atomicEth;
    return Mr.remote(keys, eth.rkey, qp.pd, qp.qpn, eth.va, 8, Access.REMOTE_ATOMIC) != 0 ? Fault.NONE : Fault.KEY;
  }
  if (isSend(opcode)) return Fault.NONE;
  if (isFlush(opcode)) return checkFlushKey(qp, packet);
  let right = rightFor(opcode);
  if (isFirst(opcode)) {
    let reth = packet.reth;
    let length = reth.length;
    if (length == 0) return Fault.NONE;
    packet.target = Mr.remote(keys, reth.rkey, qp.pd, qp.qpn, reth.va, length, right);
  } else {
    // the region may have gone since the first packet
    packet.target = Mr.remote(keys, qp.writeRkey, qp.pd, qp.qpn, qp.writeVa, qp.writeLeft, right);
  }
  return packet.target != 0 ? Fault.NONE : Fault.KEY;
}
