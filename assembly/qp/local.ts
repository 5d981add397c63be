// Operations that stay in the card: closing a key, registering a fast region, binding a window. They take their turn in the send
// queue once everything before them is done, and have no PSN (IBTA 10.8.4).
import { Card } from '../host/card';
import { Mr } from '../host/mr';
import { SendWqe } from '../host/wqe';
import { Errno, QpState, WcStatus, WrOpcode } from '../limits';
import { failSend, retireSend } from './complete';
import { Qp } from './qp';

export function isLocal(opcode: u32): bool {
  return opcode == WrOpcode.LOCAL_INV || opcode == WrOpcode.REG_MR || opcode == WrOpcode.BIND_MW;
}

/** False when it has to wait, or has failed. */
export function executeLocal(qp: Qp, wqe: SendWqe): bool {
  if (qp.sqNext != qp.sqTail || qp.state != QpState.RTS) return false;
  if (execute(qp, wqe) != Errno.OK) {
    failSend(qp, wqe.opcode == WrOpcode.BIND_MW ? WcStatus.MW_BIND_ERR : WcStatus.LOC_QP_OP_ERR, 0, qp.nextPsn);
    return false;
  }
  qp.sqNext++;
  wqe.lastPsn = qp.nextPsn;
  retireSend(qp);
  return true;
}

function execute(qp: Qp, wqe: SendWqe): Errno {
  let keys = Card.get().keys;
  if (wqe.opcode == WrOpcode.LOCAL_INV) return Mr.invalidate(keys, wqe.imm, qp.pd, qp.qpn);
  // the key names the region or window, its tag is the new one
  let mr = changetype<Mr>(keys.find(wqe.rkey >>> 8));
  if (mr.address == 0 || mr.pd != qp.pd) return Errno.ENOENT;
  if (wqe.opcode == WrOpcode.REG_MR) return mr.register(wqe.memory, wqe.length, wqe.access, wqe.va, wqe.rkey);
  let region = changetype<Mr>(keys.find(wqe.imm >>> 8));
  if (region.address != 0 && region.lkey != wqe.imm) return Errno.ENOENT;
  return mr.bind(region, wqe.va, wqe.length, wqe.access, wqe.rkey, qp.qpn);
}
