// Completions of work requests. A full completion queue fails the queue pair.

import { GSI_QPN, WcFlag, WcOpcode, WcStatus } from '../codes';
import { Counter } from '../counters';
import { Cqe } from '../host/cqe';
import { matchingPkeyIndex } from '../host/pkey';
import { hasImm, hasInvalidate, isWrite } from '../wire/opcode';
import { Packet } from '../wire/packet';
import { fillCqe, postSendCqe, takeRecvWqe } from './flush';
import { Qp } from './qp';
import { failOnOverrun } from './state';

/** Completes the oldest send work request successfully. */
export function retireSend(qp: Qp): void {
  let wqe = qp.sendWqe(qp.sqTail);
  if (!postSendCqe(qp, wqe, WcStatus.SUCCESS, 0, wqe.lastPsn)) failOnOverrun(qp);
}

/** Starts the completion of the current receive WQE; null when the completion is lost. */
function beginRecv(qp: Qp, status: WcStatus): Cqe {
  takeRecvWqe(qp);
  qp.hasRecvWqe = false;
  let cqe = qp.recvCq.reserve();
  if (changetype<usize>(cqe) == 0) failOnOverrun(qp);
  else fillCqe(cqe, qp, qp.recvWqe.wrId, status);
  return cqe;
}

function endRecv(qp: Qp, packet: Packet, status: WcStatus): void {
  if (status != WcStatus.SUCCESS) qp.count(Counter.resp_cqe_error);
  qp.recvCq.commit(packet.isSolicited || status != WcStatus.SUCCESS);
}

/** A message, or immediate data, has arrived for the current receive WQE. */
export function completeRecv(qp: Qp, packet: Packet, bytes: u32, status: WcStatus): void {
  let cqe = beginRecv(qp, status);
  if (changetype<usize>(cqe) == 0) return;
  let opcode = packet.opcode;
  cqe.opcode = isWrite(opcode) ? WcOpcode.RECV_RDMA_WITH_IMM : WcOpcode.RECV;
  cqe.byteLen = bytes;
  cqe.srcQpn = qp.destQpn;
  cqe.psn = packet.psn;
  if (status == WcStatus.SUCCESS && hasImm(opcode)) {
    cqe.flags = WcFlag.WITH_IMM;
    cqe.imm = packet.imm;
  } else if (status == WcStatus.SUCCESS && hasInvalidate(opcode)) {
    cqe.flags = WcFlag.WITH_INV;
    cqe.invalidatedRkey = packet.invalidateRkey;
  }
  endRecv(qp, packet, status);
}

/** A datagram has arrived for the current receive WQE. */
export function completeDatagram(qp: Qp, packet: Packet, bytes: u32, status: WcStatus): void {
  let cqe = beginRecv(qp, status);
  if (changetype<usize>(cqe) == 0) return;
  cqe.opcode = WcOpcode.RECV;
  cqe.byteLen = bytes;
  cqe.srcQpn = packet.deth.sourceQpn;
  cqe.psn = packet.psn;
  cqe.flags = packet.isIpv6 ? WcFlag.GRH | WcFlag.IPV6 : WcFlag.GRH;
  cqe.pkeyIndex = <u16>(qp.qpn == GSI_QPN ? matchingPkeyIndex(packet.pkey) : qp.pkeyIndex);
  let ethernet = packet.ethernet;
  memory.copy(cqe.sourceMac, ethernet.sourcePtr, 6);
  if (ethernet.isTagged) {
    cqe.flags |= WcFlag.WITH_VLAN;
    cqe.vlanTci = <u16>ethernet.tci;
  }
  if (hasImm(packet.opcode)) {
    cqe.flags |= WcFlag.WITH_IMM;
    cqe.imm = packet.imm;
  }
  endRecv(qp, packet, status);
}
