// Operations that the card executes without a packet: LOCAL_INV, REG_MR, BIND_MW. Each waits in the send queue until
// all earlier work requests are done, and has no PSN (IBTA 10.8.4).

import { Errno, QpState, WcStatus, WrOpcode } from '../codes';
import { Card } from '../host/card';
import { Mr } from '../host/mr';
import { SendWqe } from '../host/wqe';
import { retireSend } from './completion';
import { Qp } from './qp';
import { failSend } from './state';

/** Returns false when the operation has to wait or has failed. */
export function executeLocalOp(qp: Qp, wqe: SendWqe): bool {
  if (qp.sqNext != qp.sqTail || qp.state != QpState.RTS) return false;
  if (execute(qp, wqe) != Errno.OK) {
    // of all three: to the specification it is the memory management operation error (IBTA 11.6.2)
    failSend(qp, WcStatus.MW_BIND_ERR, 0, qp.allocPsn);
    return false;
  }
  qp.sqNext++;
  wqe.lastPsn = qp.allocPsn;
  retireSend(qp);
  return true;
}

function execute(qp: Qp, wqe: SendWqe): Errno {
  let keys = Card.get().keys;
  if (wqe.opcode == WrOpcode.LOCAL_INV) return Mr.invalidate(keys, wqe.imm, qp.pd, qp.qpn);
  // the index of the key names the region or window, its tag is the new one
  let mr = changetype<Mr>(keys.lookup(wqe.rkey >>> 8));
  if (mr.handle == 0 || mr.pd != qp.pd) return Errno.ENOENT;
  if (wqe.opcode == WrOpcode.REG_MR) return mr.registerFast(wqe.memory, wqe.length, wqe.access, wqe.va, wqe.rkey);
  let region = changetype<Mr>(keys.lookup(wqe.imm >>> 8));
  if (region.handle != 0 && region.lkey != wqe.imm) return Errno.ENOENT;
  return mr.bind(region, wqe.va, wqe.length, wqe.access, wqe.rkey, qp.qpn);
}
