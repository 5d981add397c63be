// Unreliable datagrams (IBTA 9.8.3): one packet each, to any queue pair, never answered.
import { Counter, NO_DROP } from '../counters';
import { Card } from '../host/card';
import { isOurs } from '../host/gid';
import { gather, SendWqe, scatter } from '../host/wqe';
import { DATAGRAM_PAD, QpState, WcStatus, WrOpcode } from '../limits';
import { BTH_BYTES, Bth } from '../wire/bth';
import { Deth } from '../wire/deth';
import { ImmDt } from '../wire/immdt';
import { IPV4_BYTES } from '../wire/ipv4';
import { headerBytes, Opcode } from '../wire/opcode';
import { Packet } from '../wire/packet';
import { psnAdd } from '../wire/psn';
import { Ah } from './ah';
import { completeDatagram, failSend, hold, retireSend } from './complete';
import { Qp } from './qp';
import { setState } from './state';

/** What stands in front of every received datagram in its buffer: the place of a GRH. */
export const GRH_BYTES: u32 = 40;
/** A Q_Key with this bit says: take that of the queue pair (IBTA 10.2.5). */
const CONTROLLED_QKEY: u32 = 0x80000000;

/** Writes the next datagram to `frame`; answers its length, 0 when there is none. */
export function nextDatagram(qp: Qp, frame: usize): u32 {
  if (qp.state != QpState.RTS || qp.sqNext == qp.sqHead) return 0;
  let wqe = qp.sendWqe(qp.sqNext);
  let path = changetype<Ah>(wqe.ah).path;
  let bth = path.begin(frame);
  let opcode = wqe.opcode == WrOpcode.SEND_WITH_IMM ? Opcode.UD_SEND_ONLY_WITH_IMM : Opcode.UD_SEND_ONLY;
  let payload = bth + headerBytes(opcode);
  if (!copyPayload(qp, wqe, payload)) {
    failSend(qp, WcStatus.LOC_PROT_ERR, 0, qp.sendPsn);
    return 0;
  }
  if (opcode == Opcode.UD_SEND_ONLY_WITH_IMM) ImmDt.at(payload - 4).write(wqe.imm);
  let pad = -wqe.length & 3;
  if (pad) store<u32>(payload + wqe.length, 0);
  let psn = qp.sendPsn;
  Bth.at(bth).write(opcode, wqe.isSolicited, pad, qp.pkey, wqe.destQpn, false, psn, qp.migReq);
  Deth.at(bth + BTH_BYTES).write(wqe.qkey & CONTROLLED_QKEY ? qp.qkey : wqe.qkey, qp.qpn);
  qp.sendPsn = qp.nextPsn = qp.wirePsn = qp.unackedPsn = psnAdd(psn, 1);
  qp.sqNext++;
  let end = payload + wqe.length + pad;
  wqe.lastPsn = psn;
  qp.count(Counter.rdma_sends);
  retireSend(qp);
  return path.close(frame, end);
}

function copyPayload(qp: Qp, wqe: SendWqe, to: usize): bool {
  if (!wqe.isInline) return gather(Card.get().keys, qp.pd, wqe.pieces, wqe.sgeCount, 0, to, wqe.length, false);
  memory.copy(to, wqe.pieces, wqe.length);
  return true;
}

/** Whether a datagram that names this queue pair may come in: its address is ours and it knows the Q_Key. */
export function admitDatagram(qp: Qp, packet: Packet): Counter {
  packet.copyDestGid(DATAGRAM_PAD);
  if (!isOurs(DATAGRAM_PAD)) return Counter.drop_destination_address;
  return admitQkey(qp, packet);
}

export function admitQkey(qp: Qp, packet: Packet): Counter {
  return packet.deth.qkey == qp.qkey ? NO_DROP : Counter.drop_qkey;
}

/** Answers why the datagram was dropped, or NO_DROP. */
export function receiveDatagram(qp: Qp, packet: Packet): Counter {
  if (!qp.isHeld && qp.rq.isEmpty) return Counter.drop_no_receive;
  let room = qp.isHeld ? qp.held.length : qp.rq.oldest.length;
  let bytes = packet.payloadBytes;
  // a buffer that is too short waits for a datagram that fits: no peer may use it up or stop the queue pair
  if (room < bytes + GRH_BYTES) return Counter.drop_receive_length;
  hold(qp);
  writeGrh(packet);
  let keys = Card.get().keys;
  let wqe = qp.held;
  let placed =
    scatter(keys, qp.recvPd, wqe.pieces, wqe.sgeCount, 0, DATAGRAM_PAD, GRH_BYTES) &&
    scatter(keys, qp.recvPd, wqe.pieces, wqe.sgeCount, GRH_BYTES, packet.payload, bytes);
  if (!placed) {
    completeDatagram(qp, packet, 0, WcStatus.LOC_PROT_ERR);
    setState(qp, QpState.ERR);
    return Counter.drop_unreliable_refused;
  }
  completeDatagram(qp, packet, bytes + GRH_BYTES, WcStatus.SUCCESS);
  qp.count(Counter.rdma_recvs);
  return NO_DROP;
}

/** The 40 bytes in front of the payload: the IPv6 header, or 20 bytes of zeroes and the IPv4 header (annex 17). */
function writeGrh(packet: Packet): void {
  if (packet.isIpv6) {
    packet.copyIp(DATAGRAM_PAD);
  } else {
    memory.fill(DATAGRAM_PAD, 0, GRH_BYTES - IPV4_BYTES);
    packet.copyIp(DATAGRAM_PAD + <usize>(GRH_BYTES - IPV4_BYTES));
  }
}
