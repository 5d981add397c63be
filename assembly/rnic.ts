// The card as a whole: takes frames off the receive ring and hands each to its queue pair, lets deadlines take effect, and
// lets the queue pairs that have something to say fill the transmit ring. The order of calls is rx, expire, tx.
import { add, Counter, countDevice, NO_DROP } from './counters';
import { Card } from './host/card';
import { Doorbells } from './host/doorbell';
import { Events } from './host/event';
import { Mr } from './host/mr';
import { initCongestion } from './host/parameter';
import { Pd } from './host/pd';
import { initPkeys, pkeyAt } from './host/pkey';
import { allocate, initPool } from './host/pool';
import { initRandom } from './host/random';
import { Ring } from './host/ring';
import { Table } from './host/table';
import { COUNTERS, Errno, GSI_QPN, MAX_FRAME, MGID_PAD, QpState, QpType, Quirk, SCRATCH } from './limits';
import { nextAnswer } from './qp/answerer';
import { receiveResponse } from './qp/completer';
import { nextCnp, noteMarked, receiveCnp } from './qp/congestion';
import { admitDatagram, admitQkey, nextDatagram, receiveDatagram } from './qp/datagram';
import { answerDoorbells } from './qp/doorbell';
import { Membership, member } from './qp/multicast';
import { Qp } from './qp/qp';
import { nextRequest } from './qp/requester';
import { receiveRequest } from './qp/responder';
import { expired } from './qp/retry';
import { Run } from './qp/run';
import { schedule, takeReady } from './qp/schedule';
import { TIMER_BYTES, takeExpired } from './qp/timer';
import { receiveUnreliable } from './qp/unreliable';
import { initIcrc } from './wire/icrc';
import { classOf, initOpcodes, isResponse, Opcode, OpcodeClass } from './wire/opcode';
import { Packet } from './wire/packet';

/** The queue pair number that means a multicast group (IBTA 10.5.1). */
const MULTICAST_QPN: u32 = 0xffffff;

function isPowerOfTwo(value: u32): bool {
  return popcnt<u32>(value) == 1;
}

/** Lays out the memory. The seed lies at scratch. */
export function openCard(
  memoryBytes: u64,
  txSlotBytes: u32,
  txSlots: u32,
  rxSlotBytes: u32,
  rxSlots: u32,
  maxQp: u32,
  maxMr: u32,
): Errno {
  if (min(txSlotBytes, rxSlotBytes) < MAX_FRAME || !isPowerOfTwo(txSlots) || !isPowerOfTwo(rxSlots))
    return Errno.EINVAL;
  if (maxQp == 0 || maxMr == 0 || maxQp > 1 << 20 || maxMr > 1 << 20) return Errno.EINVAL;
  initRandom(SCRATCH);
  initIcrc();
  initOpcodes();
  initPool(memoryBytes);
  initCongestion();
  initPkeys();
  let card = Card.get();
  card.memoryBytes = memoryBytes;
  card.keys = Table.create(maxMr);
  card.qps = Table.create(maxQp);
  card.events = Events.create();
  card.doorbells = Doorbells.create(maxQp);
  card.txRing = Ring.create(txSlots, txSlotBytes);
  card.rxRing = Ring.create(rxSlots, rxSlotBytes);
  card.timers = allocate(<u64>(maxQp + 1) * TIMER_BYTES);
  let all =
    changetype<usize>(card.keys) != 0 &&
    changetype<usize>(card.qps) != 0 &&
    changetype<usize>(card.events) != 0 &&
    changetype<usize>(card.doorbells) != 0 &&
    changetype<usize>(card.txRing) != 0 &&
    changetype<usize>(card.rxRing) != 0 &&
    card.timers != 0;
  return all ? Errno.OK : Errno.ENOMEM;
}

export function receiveFrames(now: u64, most: u32): u32 {
  let card = Card.get();
  card.now = now;
  let ring = card.rxRing;
  let n = ring.consumer;
  let end = ring.producer;
  let packets: u32 = 0;
  for (; n != end && packets < most; n++) packets += receiveFrame(ring.frame(n), ring.bytes(n), ring.options(n));
  ring.consumer = n;
  countTaken(Packet.current());
  return packets;
}

/** Counts for the card, once in a while, what receivePacket has counted for queue pairs. */
function countTaken(packet: Packet): void {
  add(COUNTERS, Counter.rcvd_pkts, packet.taken);
  add(COUNTERS, Counter.rcvd_bytes, packet.takenBytes);
  packet.taken = 0;
  packet.takenBytes = 0;
}

/** A frame, or a super-packet; answers of how many packets. */
function receiveFrame(frame: usize, bytes: u32, options: u32): u32 {
  let packet = Packet.current();
  let drop = packet.open(frame, bytes, options);
  if (drop != NO_DROP) {
    countDevice(drop);
    return 1;
  }
  let packets: u32 = 0;
  do {
    receivePacket(packet);
    packets++;
  } while (packet.next());
  return packets;
}

/** Checks in the order in which a reason to drop can be known; the ICRC last, because it costs most. */
function receivePacket(packet: Packet): void {
  let drop = packet.parse();
  if (drop != NO_DROP) return countDevice(drop);
  if (packet.destQpn == MULTICAST_QPN) return receiveMulticast(packet);
  let qp = changetype<Qp>(Card.get().qps.find(packet.destQpn));
  if (qp.ptr == 0) return countDevice(Counter.drop_qpn);
  drop = admit(qp, packet);
  if (drop == NO_DROP && !isIntact(qp, packet)) drop = Counter.drop_icrc;
  if (drop == NO_DROP) drop = dispatch(qp, packet);
  if (drop != NO_DROP) return qp.count(drop);
  add(qp.counters, Counter.rcvd_pkts, 1);
  add(qp.counters, Counter.rcvd_bytes, packet.frameBytes);
  packet.taken++;
  packet.takenBytes += packet.frameBytes;
}

function isIntact(qp: Qp, packet: Packet): bool {
  packet.register = qp.type == QpType.UD ? packet.headerRegister : qp.path.registerOf(packet);
  return packet.isIcrcRight || ((qp.quirks & Quirk.RXE_FLUSH_ICRC) != 0 && packet.isIcrcOfRxe);
}

function dispatch(qp: Qp, packet: Packet): Counter {
  if (packet.opcode == Opcode.CNP) {
    receiveCnp(qp);
    return NO_DROP;
  }
  if (qp.type == QpType.UD) return receiveDatagram(qp, packet);
  if (packet.isMarked) noteMarked(qp);
  if (qp.type == QpType.UC) return receiveUnreliable(qp, packet);
  return isResponse(packet.opcode) ? receiveResponse(qp, packet) : receiveRequest(qp, packet);
}

/** A datagram for all members of a group. Counts as received when one of them took it. */
function receiveMulticast(packet: Packet): void {
  packet.copyDestGid(MGID_PAD);
  packet.register = packet.headerRegister;
  let verdict = Counter.drop_multicast;
  for (let m = member(MGID_PAD, changetype<Membership>(0)); changetype<usize>(m) != 0; m = member(MGID_PAD, m)) {
    let qp = changetype<Qp>(m.qp);
    let drop = admitTransport(qp, packet);
    if (drop == NO_DROP) drop = admitQkey(qp, packet);
    if (drop == NO_DROP && verdict != NO_DROP && !packet.isIcrcRight) drop = Counter.drop_icrc;
    if (drop == NO_DROP) drop = dispatch(qp, packet);
    countFrame(qp.counters, drop, packet.frameBytes);
    if (verdict != NO_DROP) verdict = drop;
  }
  countFrame(COUNTERS, verdict, packet.frameBytes);
}

function countFrame(set: usize, drop: Counter, bytes: u32): void {
  if (drop != NO_DROP) return add(set, drop, 1);
  add(set, Counter.rcvd_pkts, 1);
  add(set, Counter.rcvd_bytes, bytes);
}

/** Whether a queue pair may look at a packet at all (IBTA 9.6.1). */
function admit(qp: Qp, packet: Packet): Counter {
  let drop = admitTransport(qp, packet);
  if (drop != NO_DROP) return drop;
  if (qp.type == QpType.UD) return admitDatagram(qp, packet);
  if (!qp.path.isToUs(packet)) return Counter.drop_destination_address;
  return qp.path.isFromPeer(packet) ? NO_DROP : Counter.drop_source_address;
}

/** Opcode, state and partition. */
function admitTransport(qp: Qp, packet: Packet): Counter {
  let kind = classOf(packet.opcode);
  // a CNP is about a connection of either kind
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

/** Queue pair 1 is in all partitions of the port, any other in its own (IBTA 10.9.3). */
function isInPartition(qp: Qp, pkey: u32): bool {
  if (qp.qpn != GSI_QPN) return isPkeyRight(pkey, qp.pkey);
  for (let i: u32 = 0; pkeyAt(i) != 0; i++) if (isPkeyRight(pkey, pkeyAt(i))) return true;
  return false;
}

function opcodeClass(type: u32): u32 {
  return type == QpType.RC ? OpcodeClass.RC : type == QpType.UC ? OpcodeClass.UC : OpcodeClass.UD;
}

/** Same partition, and at least one of the two a full member (IBTA 10.9.3). */
function isPkeyRight(a: u32, b: u32): bool {
  return ((a ^ b) & 0x7fff) == 0 && (a & 0x7fff) != 0 && ((a | b) & 0x8000) != 0;
}

export function expireTimers(now: u64): void {
  Card.get().now = now;
  for (let qp = takeExpired(now); qp.ptr != 0; qp = takeExpired(now)) expired(qp);
}

export function transmitFrames(now: u64, most: u32): u32 {
  let card = Card.get();
  card.now = now;
  answerDoorbells();
  let ring = card.txRing;
  let first = ring.producer;
  let end = first + min(ring.free, most);
  let n = first;
  // where a whole run has no room any more, it waits for the next turn rather than leave in two parts
  let longest = max(1, Run.current().mostPackets);
  while (n != end && card.readyFirst != 0 && (n == first || end - n >= longest))
    n = transmitOf(takeReady(), ring, n, end);
  ring.producer = n;
  return n - first;
}

/** One queue pair's turn: answers, then requests. Where there are both, each has its share, so that neither starves the other. */
function transmitOf(qp: Qp, ring: Ring, n: u32, end: u32): u32 {
  let run = Run.current();
  let first = n;
  run.end();
  let burst = run.burst;
  let stop = n + min(burst, end - n);
  let bytes = nextCnp(qp, ring.frame(n));
  if (bytes != 0) run.put(ring, n++, bytes);
  let share = n + min(qp.sqNext == qp.sqHead ? burst : burst >> 1, stop - n);
  let isDry = true;
  while (n != share && !run.isFull) {
    bytes = nextAnswer(qp, ring.frame(n));
    if (bytes == 0) break;
    run.put(ring, n++, bytes);
  }
  if (n == share || run.isFull) isDry = false;
  run.end();
  while (n != stop && !run.isFull) {
    bytes = qp.type == QpType.UD ? nextDatagram(qp, ring.frame(n)) : nextRequest(qp, ring.frame(n));
    if (bytes == 0) break;
    run.put(ring, n++, bytes);
  }
  if (n == stop || run.isFull) isDry = false;
  if (!isDry) schedule(qp);
  if (n != first) {
    qp.countBy(Counter.sent_pkts, n - first);
    qp.countBy(Counter.sent_bytes, run.takeSent());
  }
  return n;
}

/** A region over memory of the card; null with lastErrno set when refused. */
export function registerMr(pd: Pd, ptr: usize, length: u32, access: u32, iova: u64): Mr {
  let card = Card.get();
  card.lastErrno = Errno.EINVAL;
  if (!Mr.isAllowed(ptr, length, access, iova)) return changetype<Mr>(0);
  card.lastErrno = Errno.ENOMEM;
  if (card.keys.isFull) return changetype<Mr>(0);
  return Mr.create(card.keys, pd, ptr, length, access, iova);
}
