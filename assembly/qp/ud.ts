// Unreliable datagrams (IBTA 9.8.3): messages of one packet to any queue pair, never acknowledged.

import { GSI_QPN, QpState, StateReason, WcStatus, WrOpcode } from '../codes';
import { Counter, NO_DROP } from '../counters';
import { Card } from '../host/card';
import { isLocalGid } from '../host/gid';
import { pkeyAt } from '../host/pkey';
import { isVlanKnown } from '../host/vlan';
import { Gathered, scatter } from '../host/wqe';
import { DATAGRAM_PAD } from '../memorymap';
import { BTH_BYTES, Bth } from '../wire/bth';
import { Deth } from '../wire/deth';
import { ImmDt } from '../wire/immdt';
import { IPV4_BYTES } from '../wire/ipv4';
import { headerBytes, Opcode } from '../wire/opcode';
import { Packet } from '../wire/packet';
import { psnAdd } from '../wire/psn';
import { Ah } from './ah';
import { completeDatagram, retireSend } from './completion';
import { takeRecvWqe } from './flush';
import { GsoBurst } from './gso';
import { Path } from './path';
import { copyPayload } from './payload';
import { Qp } from './qp';
import { hasRecvWqeFor } from './quota';
import { failSend, setState } from './state';

/** Length of the GRH in front of every received datagram. */
export const GRH_BYTES: u32 = 40;
/** A Q_Key with this bit means the Q_Key of the queue pair (IBTA 10.2.5). */
const CONTROLLED_QKEY: u32 = 0x80000000;

/** Writes the next datagram to `frame`; returns its length, 0 when there is none. */
export function nextDatagram(qp: Qp, frame: usize): u32 {
  if (qp.state != QpState.RTS || qp.sqNext == qp.sqHead) return 0;
  let wqe = qp.sendWqe(qp.sqNext);
  let path = changetype<Ah>(wqe.ah).path;
  let bth = path.begin(frame);
  let opcode = wqe.opcode == WrOpcode.SEND_WITH_IMM ? Opcode.UD_SEND_ONLY_WITH_IMM : Opcode.UD_SEND_ONLY;
  let payload = bth + headerBytes(opcode);
  let gathered = copyPayload(qp, wqe, opcode, 0, payload, wqe.length, false);
  if (gathered == Gathered.REFUSED) {
    failSend(qp, WcStatus.LOC_PROT_ERR, 0, qp.sendPsn);
    return 0;
  }
  if (opcode == Opcode.UD_SEND_ONLY_WITH_IMM) ImmDt.at(payload - 4).write(wqe.imm);
  let pad = -wqe.length & 3;
  if (pad) store<u32>(payload + wqe.length, 0);
  let psn = qp.sendPsn;
  let pkey = qp.qpn == GSI_QPN ? pkeyAt(wqe.pkeyIndex) : qp.pkey;
  Bth.at(bth).write(opcode, wqe.isSolicited, pad, pkey, wqe.destQpn, false, psn, qp.migReq);
  Deth.at(bth + BTH_BYTES).write(wqe.qkey & CONTROLLED_QKEY ? qp.qkey : wqe.qkey, qp.qpn);
  qp.sendPsn = qp.allocPsn = qp.unsentPsn = qp.unackedPsn = psnAdd(psn, 1);
  qp.sqNext++;
  let end = payload + wqe.length + pad;
  wqe.lastPsn = psn;
  qp.count(Counter.rdma_sends);
  GsoBurst.current().towards(wqe.destQpn);
  retireSend(qp);
  return path.close(frame, end, gathered == Gathered.ALL_BUT_SHARE);
}

/**
 * Writes the frame of a datagram that is sent outside the card, if at all: it takes no PSN and no work request.
 * Receivers do not check the PSN (IBTA 9.8.3.1.1). Returns its length.
 * @param bytes of the message, a multiple of four
 * @param sourcePort of UDP; 0 = that of the path
 */
export function writeDatagram(
  qp: Qp,
  path: Path,
  pkey: u32,
  destQpn: u32,
  qkey: u32,
  message: usize,
  bytes: u32,
  frame: usize,
  sourcePort: u32,
): u32 {
  let bth = path.begin(frame);
  Bth.at(bth).write(Opcode.UD_SEND_ONLY, false, 0, pkey, destQpn, false, 0, qp.migReq);
  Deth.at(bth + BTH_BYTES).write(qkey, qp.qpn);
  let payload = bth + headerBytes(Opcode.UD_SEND_ONLY);
  memory.copy(payload, message, bytes);
  return path.closeApart(frame, payload + bytes, sourcePort);
}

/**
 * Returns why a datagram may not enter this queue pair, or NO_DROP: its VLAN must be one to which a path leads, its
 * destination our address, and its Q_Key right.
 */
export function admitDatagram(qp: Qp, packet: Packet): Counter {
  if (!isVlanKnown(packet.vlan)) return Counter.drop_vlan;
  packet.copyDestGid(DATAGRAM_PAD);
  if (!isLocalGid(DATAGRAM_PAD)) return Counter.drop_destination_address;
  return admitMember(qp, packet);
}

/**
 * The same for a member of the datagram's multicast group. A datagram without a receive is dropped here, before its
 * ICRC is computed: a flood of them must cost little.
 */
export function admitMember(qp: Qp, packet: Packet): Counter {
  if (packet.deth.qkey != qp.qkey) return Counter.drop_qkey;
  return qp.hasRecvWqe || hasRecvWqeFor(qp) ? NO_DROP : Counter.drop_no_receive;
}

/** Returns why the datagram was dropped, or NO_DROP. */
export function receiveDatagram(qp: Qp, packet: Packet): Counter {
  let room = qp.hasRecvWqe ? qp.recvWqe.length : qp.rq.oldest.length;
  let bytes = packet.payloadBytes;
  // a receive that is too short stays for a datagram that fits: no peer may use it up or stop the queue pair
  if (room < bytes + GRH_BYTES) return Counter.drop_receive_length;
  takeRecvWqe(qp);
  writeGrh(packet);
  let keys = Card.get().keys;
  let wqe = qp.recvWqe;
  let placed =
    scatter(keys, qp.recvPd, wqe.sges, wqe.sgeCount, 0, DATAGRAM_PAD, GRH_BYTES) &&
    scatter(keys, qp.recvPd, wqe.sges, wqe.sgeCount, GRH_BYTES, packet.payload, bytes);
  if (!placed) {
    completeDatagram(qp, packet, 0, WcStatus.LOC_PROT_ERR);
    setState(qp, QpState.ERR, StateReason.RECV_FAILED);
    return Counter.drop_unreliable_refused;
  }
  completeDatagram(qp, packet, bytes + GRH_BYTES, WcStatus.SUCCESS);
  qp.count(Counter.rdma_recvs);
  return NO_DROP;
}

/** Writes the 40 bytes in front of the payload: the IPv6 header, or 20 zero bytes and the IPv4 header (annex 17). */
function writeGrh(packet: Packet): void {
  if (packet.isIpv6) {
    packet.copyIp(DATAGRAM_PAD);
  } else {
    memory.fill(DATAGRAM_PAD, 0, GRH_BYTES - IPV4_BYTES);
    packet.copyIp(DATAGRAM_PAD + <usize>(GRH_BYTES - IPV4_BYTES));
  }
}
