// Not part of the card: a second entry with which tests drive the wire formats without a queue pair, and put a queue
// pair into states that take long to reach.
import { Counter, NO_DROP } from './counters';
import { Qp } from './qp/qp';
import { AETH_BYTES, Aeth } from './wire/aeth';
import { ATOMIC_ACK_ETH_BYTES, ATOMIC_ETH_BYTES, AtomicAckEth, AtomicEth } from './wire/atomiceth';
import { BTH_BYTES, Bth } from './wire/bth';
import { DETH_BYTES, Deth } from './wire/deth';
import { ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet } from './wire/ethernet';
import { FETH_BYTES, Feth } from './wire/feth';
import { headerRegister, ICRC_BYTES, icrcFrom, initIcrc } from './wire/icrc';
import { IETH_BYTES, Ieth } from './wire/ieth';
import { IMMDT_BYTES, ImmDt } from './wire/immdt';
import { IPV4_BYTES, Ipv4 } from './wire/ipv4';
import { IPV6_BYTES, Ipv6 } from './wire/ipv6';
import {
  classOf,
  hasAeth,
  hasImm,
  hasInvalidate,
  initOpcodes,
  isAtomic,
  isFlush,
  Opcode,
  OpcodeClass,
} from './wire/opcode';
import { Packet } from './wire/packet';
import { RETH_BYTES, Reth } from './wire/reth';
import { UDP_BYTES, Udp } from './wire/udp';

export { rnrDelay } from './wire/aeth';
export { crc } from './wire/crc';
export { packetCount, psnAdd, psnDiff } from './wire/psn';
export { Counter, NO_DROP };

export function init(): void {
  initOpcodes();
  initIcrc();
}

/** Sets the number of messages that the queue pair has sent and received. */
export function setMessages(qp: usize, sent: u32, received: u32): void {
  let pair = changetype<Qp>(qp);
  pair.ssn = pair.lsn = sent;
  pair.msn = received;
}

export function parse(frame: usize, bytes: u32, options: u32): u32 {
  let packet = Packet.current();
  let drop = packet.open(frame, bytes, options);
  return drop == NO_DROP ? packet.parse() : drop;
}
/** Returns whether the ICRC of the frame that was parsed last is right. */
export function isIcrcRight(): bool {
  let packet = Packet.current();
  packet.register = packet.headerRegister;
  return packet.isIcrcRight;
}

/** Returns whether the FLUSH that was parsed last has the ICRC that rxe computes. */
export function isIcrcOfRxe(): bool {
  return Packet.current().isIcrcOfRxe;
}

/**
 * Writes the frame that was parsed last again, at `to`, through getters and setters. `vlanTci`, `hopLimit` and
 * `sourcePort` are passed in because the card has no getters for them. Returns the frame's length.
 */
export function reemit(frame: usize, to: usize, vlanTci: u32, hopLimit: u32): u32 {
  let packet = Packet.current();
  let type = packet.isIpv6 ? ETHERTYPE_IPV6 : ETHERTYPE_IPV4;
  let ip = to + Ethernet.at(to).write(frame, frame + 6, vlanTci, type);
  let udp = ip + (packet.isIpv6 ? IPV6_BYTES : IPV4_BYTES);
  if (packet.isIpv6) Ipv6.at(ip).write(packet.sourceIp, packet.destIp, Ipv6.at(packet.ip).trafficClass, 0, hopLimit);
  else Ipv4.at(ip).write(packet.sourceIp, packet.destIp, Ipv4.at(packet.ip).tos, hopLimit);
  let bth = packet.bth;
  Udp.at(udp).write(Udp.at(packet.bthPtr - UDP_BYTES).sourcePort);
  Bth.at(udp + UDP_BYTES).write(
    packet.opcode,
    packet.isSolicited,
    bth.pad,
    packet.pkey,
    packet.destQpn,
    packet.isAckRequested,
    packet.psn,
    true,
  );
  let at = extensions(packet, udp + UDP_BYTES + BTH_BYTES);
  let bytes = packet.payloadBytes + bth.pad;
  memory.copy(at, packet.payload, bytes);
  at += bytes;
  let length = <u32>(at - udp) + ICRC_BYTES;
  Udp.at(udp).close(length);
  if (packet.isIpv6) Ipv6.at(ip).close(length);
  else Ipv4.at(ip).close(IPV4_BYTES + length, 0);
  store<u32>(at, icrcFrom(headerRegister(ip, length), udp + UDP_BYTES, at));
  return <u32>(at - to) + ICRC_BYTES;
}

function extensions(packet: Packet, at: usize): usize {
  let opcode = packet.opcode;
  if (classOf(opcode) == OpcodeClass.UD) {
    let deth = Deth.at(packet.bthPtr + BTH_BYTES);
    Deth.at(at).write(deth.qkey, deth.sourceQpn);
    at += DETH_BYTES;
  }
  if (isFlush(opcode)) {
    Feth.at(at).write(packet.feth.placement, packet.feth.selectivity);
    at += FETH_BYTES;
  }
  if (hasReth(opcode)) {
    let reth = packet.reth;
    Reth.at(at).write(reth.va, reth.rkey, reth.length);
    at += RETH_BYTES;
  }
  if (isAtomic(opcode)) {
    let atomic = packet.atomicEth;
    AtomicEth.at(at).write(atomic.va, atomic.rkey, atomic.swapAdd, atomic.compare);
    at += ATOMIC_ETH_BYTES;
  }
  if (hasAeth(opcode)) {
    Aeth.at(at).write(packet.aeth.syndrome, packet.aeth.msn);
    at += AETH_BYTES;
  }
  if (hasImm(opcode)) {
    ImmDt.at(at).write(packet.imm);
    at += IMMDT_BYTES;
  }
  if (hasInvalidate(opcode)) {
    Ieth.at(at).write(packet.invalidateRkey);
    at += IETH_BYTES;
  }
  if (opcode == Opcode.ATOMIC_ACKNOWLEDGE) {
    AtomicAckEth.at(at).write(bswap<u64>(load<u64>(packet.atomicAckEth.ptr)));
    at += ATOMIC_ACK_ETH_BYTES;
  }
  return at;
}

function hasReth(opcode: u32): bool {
  let operation = opcode & 31;
  return (
    classOf(opcode) <= <u32>OpcodeClass.UC &&
    (operation == Opcode.RDMA_WRITE_FIRST ||
      operation == Opcode.RDMA_WRITE_ONLY ||
      operation == Opcode.RDMA_WRITE_ONLY_WITH_IMM ||
      operation == Opcode.RDMA_READ_REQUEST ||
      operation == Opcode.FLUSH ||
      operation == Opcode.ATOMIC_WRITE)
  );
}
