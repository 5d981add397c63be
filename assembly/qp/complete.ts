// Completions: how a work request ends and how its user learns of it.
import { Counter } from '../counters';
import { Card } from '../host/card';
import { Cqe } from '../host/cqe';
import { SendWqe } from '../host/wqe';
import { EventType, QpState, QpType, SendFlag, WcFlag, WcOpcode, WcStatus, WrOpcode } from '../limits';
import { hasImm, hasInvalidate, isWrite } from '../wire/opcode';
import { Packet } from '../wire/packet';
import { Ah } from './ah';
import { Qp } from './qp';
import { setState } from './state';

/** What a completion calls the operation of a send work request. */
function wcOpcode(opcode: u32): WcOpcode {
  switch (opcode) {
    case WrOpcode.RDMA_WRITE:
    case WrOpcode.RDMA_WRITE_WITH_IMM:
      return WcOpcode.RDMA_WRITE;
    case WrOpcode.RDMA_READ:
      return WcOpcode.RDMA_READ;
    case WrOpcode.ATOMIC_CMP_AND_SWP:
      return WcOpcode.COMP_SWAP;
    case WrOpcode.ATOMIC_FETCH_AND_ADD:
      return WcOpcode.FETCH_ADD;
    case WrOpcode.LOCAL_INV:
      return WcOpcode.LOCAL_INV;
    case WrOpcode.BIND_MW:
      return WcOpcode.BIND_MW;
    case WrOpcode.REG_MR:
      return WcOpcode.REG_MR;
    case WrOpcode.FLUSH:
      return WcOpcode.FLUSH;
    case WrOpcode.ATOMIC_WRITE:
      return WcOpcode.ATOMIC_WRITE;
  }
  return WcOpcode.SEND;
}

function describe(cqe: Cqe, qp: Qp, wrId: f64, status: WcStatus): void {
  cqe.wrId = wrId;
  cqe.status = status;
  cqe.qpn = qp.qpn;
  cqe.qp = qp.ptr;
  cqe.timeouts = qp.timeouts;
  cqe.rnrs = qp.rnrs;
}

/** A completion queue is full: the work request's end is lost, so the queue pair cannot go on (IBTA 9.9.3, class G). */
function overrun(qp: Qp): void {
  if (qp.state == QpState.ERR) return;
  Card.get().events.raise(EventType.QP_FATAL, qp.ptr);
  setState(qp, QpState.ERR);
}

/** A send work request is over: its address handle, if it has one, is one user poorer. */
export function letGoOfAh(wqe: SendWqe): void {
  if (wqe.ah != 0) changetype<Ah>(wqe.ah).letGo();
}

/** The WQE is the poster's again when the tail has passed it, and who sees the completion finds the room. */
function completeSend(qp: Qp, wqe: SendWqe, status: WcStatus, syndrome: u32, psn: u32): void {
  letGoOfAh(wqe);
  if (status == WcStatus.SUCCESS && !qp.signalAll && !(wqe.flags & SendFlag.SIGNALED)) {
    qp.sqTail++;
    return;
  }
  let cqe = qp.sendCq.reserve();
  if (changetype<usize>(cqe) == 0) {
    qp.sqTail++;
    return overrun(qp);
  }
  describe(cqe, qp, wqe.wrId, status);
  cqe.opcode = wcOpcode(wqe.opcode);
  cqe.byteLen = wqe.length;
  cqe.syndrome = syndrome;
  cqe.psn = psn;
  qp.sqTail++;
  qp.sendCq.commit(status != WcStatus.SUCCESS);
}

/** The oldest send work request has done its work. */
export function retireSend(qp: Qp): void {
  let wqe = qp.sendWqe(qp.sqTail);
  completeSend(qp, wqe, WcStatus.SUCCESS, 0, wqe.lastPsn);
}

/** The oldest send work request fails, and the queue pair with it. */
export function failSend(qp: Qp, status: WcStatus, syndrome: u32, psn: u32): void {
  qp.count(Counter.req_cqe_error);
  completeSend(qp, qp.sendWqe(qp.sqTail), status, syndrome, psn);
  if (qp.state == QpState.ERR) return;
  // of an unreliable queue pair only the send side stops (IBTA 10.3.1.7)
  setState(qp, qp.type == QpType.RC ? QpState.ERR : QpState.SQE);
}

/** The completion of the receive work request that is held; null when it is lost. */
function beginRecv(qp: Qp, status: WcStatus): Cqe {
  hold(qp);
  qp.isHeld = false;
  let cqe = qp.recvCq.reserve();
  if (changetype<usize>(cqe) == 0) overrun(qp);
  else describe(cqe, qp, qp.held.wrId, status);
  return cqe;
}

function endRecv(qp: Qp, packet: Packet, status: WcStatus): void {
  if (status != WcStatus.SUCCESS) qp.count(Counter.resp_cqe_error);
  qp.recvCq.commit(packet.isSolicited || status != WcStatus.SUCCESS);
}

/** A message has arrived in the receive work request that is held for it, or its immediate data has. */
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

/** A datagram has arrived in the receive work request that is held for it. */
export function completeDatagram(qp: Qp, packet: Packet, bytes: u32, status: WcStatus): void {
  let cqe = beginRecv(qp, status);
  if (changetype<usize>(cqe) == 0) return;
  cqe.opcode = WcOpcode.RECV;
  cqe.byteLen = bytes;
  cqe.srcQpn = packet.deth.sourceQpn;
  cqe.psn = packet.psn;
  cqe.flags = WcFlag.GRH;
  if (hasImm(packet.opcode)) {
    cqe.flags |= WcFlag.WITH_IMM;
    cqe.imm = packet.imm;
  }
  endRecv(qp, packet, status);
}

/** Takes a receive work request for the message that is arriving, unless there is one already. */
export function hold(qp: Qp): void {
  if (qp.isHeld) return;
  qp.rq.take(qp.held, Card.get().events);
  qp.isHeld = true;
}

/** Send work requests that are still posted end with WR_FLUSH_ERR, in order of posting. */
export function flushSends(qp: Qp): void {
  while (qp.sqTail != qp.sqHead) completeSend(qp, qp.sendWqe(qp.sqTail), WcStatus.WR_FLUSH_ERR, 0, 0);
  qp.sqNext = qp.sqHead;
}

/** So do receive work requests; those of a shared queue stay there for others (IBTA 10.2.9.2). */
export function flushReceives(qp: Qp): void {
  if (qp.isHeld) flushHeld(qp);
  if (qp.rq.isShared) return;
  while (!qp.rq.isEmpty) {
    hold(qp);
    flushHeld(qp);
  }
}

function flushHeld(qp: Qp): void {
  qp.isHeld = false;
  let cqe = qp.recvCq.reserve();
  if (changetype<usize>(cqe) == 0) return;
  describe(cqe, qp, qp.held.wrId, WcStatus.WR_FLUSH_ERR);
  cqe.opcode = WcOpcode.RECV;
  qp.recvCq.commit(true);
}
