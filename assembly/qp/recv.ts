// Receive (rxe_recv): takes frames off the receive ring, finds the queue pair of each packet, admits or drops the
// packet (IBTA 9.6.1), and passes it to the responder or the completer.
import { EventType, GSI_QPN, MULTICAST_QPN, QpState, QpType, Quirk } from '../codes';
import { add, Counter, countCard, countOf, NO_DROP } from '../counters';
import { Card } from '../host/card';
import { reportLoss } from '../host/loss';
import { doPkeysMatch, matchingPkeyIndex, NO_PKEY } from '../host/pkey';
import { isVlanKnown } from '../host/vlan';
import { COUNTERS, MGID_PAD } from '../memorymap';
import { classOf, isResponse, Opcode, OpcodeClass } from '../wire/opcode';
import { Packet } from '../wire/packet';
import { receiveResponse } from './completer';
import { noteEcnMark, receiveCnp } from './congestion';
import { Membership, nextMember } from './multicast';
import { Qp } from './qp';
import { receiveRequest } from './responder';
import { receiveUc } from './uc';
import { admitDatagram, admitMember, receiveDatagram } from './ud';

/** Packets with a wrong ICRC, and none with the right one, after which an event is raised. */
const WRONG_ICRCS: u64 = 8;

export function receiveFrames(now: u64, maxPackets: u32): u32 {
  let card = Card.get();
  card.now = now;
  let ring = card.rxRing;
  let n = ring.consumer;
  let end = ring.producer;
  let packets: u32 = 0;
  for (; n != end && packets < maxPackets; n++) packets += receiveFrame(ring.frame(n), ring.bytes(n), ring.options(n));
  ring.consumer = n;
  countReceived(Packet.current());
  return packets;
}

/** Receives a frame that is not in the ring; returns the number of its packets. */
export function receiveOne(now: u64, frame: usize, bytes: u32, options: u32): u32 {
  Card.get().now = now;
  let packets = receiveFrame(frame, bytes, options);
  countReceived(Packet.current());
  return packets;
}

/** Counts for the card, once per turn, what receivePacket has counted for queue pairs. */
function countReceived(packet: Packet): void {
  add(COUNTERS, Counter.rcvd_pkts, packet.taken);
  add(COUNTERS, Counter.rcvd_bytes, packet.takenBytes);
  packet.taken = 0;
  packet.takenBytes = 0;
}

/** Receives a frame or a super-packet; returns the number of its packets. */
function receiveFrame(frame: usize, bytes: u32, options: u32): u32 {
  let packet = Packet.current();
  let drop = packet.open(frame, bytes, options);
  if (drop != NO_DROP) {
    countDrop(drop);
    return 1;
  }
  let packets: u32 = 0;
  do {
    receivePacket(packet);
    packets++;
  } while (packet.next());
  return packets;
}

/** Counts a dropped packet of no queue pair. */
function countDrop(drop: Counter): void {
  countCard(drop);
  reportLoss();
}

/** Raises an event when packets arrive, but none is right: something on the way changes them. */
function reportWrongIcrc(qp: Qp): void {
  if (countOf(qp.counters, Counter.rcvd_pkts) != 0 || countOf(qp.counters, Counter.drop_icrc) != WRONG_ICRCS - 1)
    return;
  Card.get().events.raise(EventType.QP_ICRC_ERR, qp.ptr);
}

/** Checks a packet in the order in which a reason to drop can be known; the ICRC comes last because it costs most. */
function receivePacket(packet: Packet): void {
  let drop = packet.parse();
  if (drop != NO_DROP) return countDrop(drop);
  if (packet.destQpn == MULTICAST_QPN) return receiveMulticast(packet);
  let qp = changetype<Qp>(Card.get().qps.lookup(packet.destQpn));
  if (qp.ptr == 0) return countDrop(Counter.drop_qpn);
  drop = admit(qp, packet);
  if (drop == NO_DROP && !hasValidIcrc(qp, packet)) {
    drop = Counter.drop_icrc;
    reportWrongIcrc(qp);
  }
  if (drop == NO_DROP) {
    qp.isPeerHeard = true;
    drop = dispatch(qp, packet);
  }
  if (drop != NO_DROP) {
    qp.count(drop);
    return reportLoss();
  }
  add(qp.counters, Counter.rcvd_pkts, 1);
  add(qp.counters, Counter.rcvd_bytes, packet.frameBytes);
  packet.taken++;
  packet.takenBytes += packet.frameBytes;
}

function hasValidIcrc(qp: Qp, packet: Packet): bool {
  packet.register = qp.type == QpType.UD ? packet.headerRegister : qp.path.receivedIcrcRegister(packet);
  return packet.isIcrcRight || ((qp.quirks & Quirk.RXE_FLUSH_ICRC) != 0 && packet.isIcrcOfRxe);
}

function dispatch(qp: Qp, packet: Packet): Counter {
  if (packet.opcode == Opcode.CNP) {
    receiveCnp(qp);
    return NO_DROP;
  }
  if (qp.type == QpType.UD) return receiveDatagram(qp, packet);
  if (packet.isMarked) noteEcnMark(qp);
  if (qp.type == QpType.UC) return receiveUc(qp, packet);
  return isResponse(packet.opcode) ? receiveResponse(qp, packet) : receiveRequest(qp, packet);
}

/** Delivers a datagram to all members of a group. It counts as received when one of them has accepted it. */
function receiveMulticast(packet: Packet): void {
  packet.copyDestGid(MGID_PAD);
  packet.register = packet.headerRegister;
  let cardDrop = Counter.drop_multicast;
  for (
    let m = nextMember(MGID_PAD, changetype<Membership>(0));
    changetype<usize>(m) != 0;
    m = nextMember(MGID_PAD, m)
  ) {
    let qp = changetype<Qp>(m.qp);
    let drop = admitTransport(qp, packet);
    if (drop == NO_DROP && !isVlanKnown(packet.vlan)) drop = Counter.drop_vlan;
    if (drop == NO_DROP) drop = admitMember(qp, packet);
    if (drop == NO_DROP && cardDrop != NO_DROP && !packet.isIcrcRight) drop = Counter.drop_icrc;
    if (drop == NO_DROP) drop = dispatch(qp, packet);
    countFrame(qp.counters, drop, packet.frameBytes);
    if (cardDrop != NO_DROP) cardDrop = drop;
  }
  countFrame(COUNTERS, cardDrop, packet.frameBytes);
  if (cardDrop != NO_DROP) reportLoss();
}

function countFrame(set: usize, drop: Counter, bytes: u32): void {
  if (drop != NO_DROP) return add(set, drop, 1);
  add(set, Counter.rcvd_pkts, 1);
  add(set, Counter.rcvd_bytes, bytes);
}

/** Returns why a queue pair may not process a packet, or NO_DROP (IBTA 9.6.1). */
function admit(qp: Qp, packet: Packet): Counter {
  let drop = admitTransport(qp, packet);
  if (drop != NO_DROP) return drop;
  if (qp.type == QpType.UD) return admitDatagram(qp, packet);
  if (packet.vlan != qp.path.vlan) return Counter.drop_vlan;
  if (!qp.path.isToLocal(packet)) return Counter.drop_destination_address;
  return qp.path.isFromPeer(packet) ? NO_DROP : Counter.drop_source_address;
}

/** Checks opcode, state and partition. */
function admitTransport(qp: Qp, packet: Packet): Counter {
  let kind = classOf(packet.opcode);
  // a CNP belongs to a connection of either type
  let fits = kind == OpcodeClass.CNP ? qp.type != QpType.UD : kind == opcodeClass(qp.type);
  if (!fits) return Counter.drop_qp_type;
  let state = qp.state;
  if (state == QpState.RTR) {
    if (isResponse(packet.opcode)) return Counter.drop_qp_state;
  } else if (state != QpState.RTS && state != QpState.SQD && state != QpState.SQE) {
    return Counter.drop_qp_state;
  }
  return isInPartition(qp, packet.pkey) ? NO_DROP : Counter.drop_pkey;
}

/** Queue pair 1 is a member of all partitions of the port, any other of its own (IBTA 10.9.3). */
function isInPartition(qp: Qp, pkey: u32): bool {
  return qp.qpn == GSI_QPN ? matchingPkeyIndex(pkey) != NO_PKEY : doPkeysMatch(pkey, qp.pkey);
}

function opcodeClass(type: u32): u32 {
  return type == QpType.RC ? OpcodeClass.RC : type == QpType.UC ? OpcodeClass.UC : OpcodeClass.UD;
}
