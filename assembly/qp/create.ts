// Creates and destroys queue pairs.

import { Errno, GSI_QPN, QpState, QpType, StateReason } from '../codes';
import { Card } from '../host/card';
import { Cq } from '../host/cq';
import { Mr } from '../host/mr';
import { Pd } from '../host/pd';
import { allocate, release } from '../host/pool';
import { RecvQueue, strideFor } from '../host/rq';
import { RecvWqe, sendStrideFor } from '../host/wqe';
import { MAX_INLINE, MAX_SGE, MAX_WINDOW, MAX_WR } from '../limits';
import { takeDoorbells } from './doorbell';
import { detachAll } from './multicast';
import { QP_BYTES, Qp } from './qp';
import { newQpn, retireQpn } from './qpn';
import { releaseReorderBuffer } from './reorder';
import { releaseResources } from './resource';
import { setState } from './state';

/** Type of a queue pair, and sizes of its queues. */
@unmanaged
@final
export class QpInit {
  type: QpType;
  sendWr: u32;
  recvWr: u32;
  sendSge: u32;
  recvSge: u32;
  inline: u32;
  signalAll: bool;

  /** EOPNOTSUPP for an unknown type, EBUSY for a second GSI queue pair, EINVAL for a size out of range. */
  check(): Errno {
    let type = this.type;
    if (type != QpType.RC && type != QpType.UC && type != QpType.UD && type != QpType.GSI) return Errno.EOPNOTSUPP;
    if (type == QpType.GSI && Card.get().qps.lookup(GSI_QPN) != 0) return Errno.EBUSY;
    if (this.sendWr == 0 || this.sendWr > MAX_WR || this.recvWr > MAX_WR) return Errno.EINVAL;
    return this.sendSge > MAX_SGE || this.recvSge > MAX_SGE || this.inline > MAX_INLINE ? Errno.EINVAL : Errno.OK;
  }
}

/**
 * Creates a queue pair in RESET, with an unpredictable number or that of GSI; null when memory or numbers are
 * exhausted.
 * @param shared a shared receive queue, or null for a receive queue of its own
 */
export function createQp(pd: Pd, sendCq: Cq, recvCq: Cq, shared: RecvQueue, init: QpInit): Qp {
  let card = Card.get();
  let type = init.type;
  let qp = changetype<Qp>(card.qps.isFull ? <usize>0 : allocate(QP_BYTES));
  if (qp.ptr == 0) return qp;
  qp.sqMask = 1;
  while (qp.sqMask < init.sendWr) qp.sqMask <<= 1;
  qp.sqStride = sendStrideFor(init.sendSge, init.inline);
  qp.sqBase = allocate(<u64>qp.sqMask * qp.sqStride);
  qp.sqMask--;
  qp.rq = shared.ptr != 0 ? shared : RecvQueue.create(init.recvWr, init.recvSge);
  if (qp.rq.ptr != 0) qp.recvWqe = changetype<RecvWqe>(allocate(strideFor(qp.rq.maxSge)));
  if (qp.sqBase == 0 || qp.rq.ptr == 0 || qp.recvWqe.ptr == 0) {
    releaseRings(qp);
    return changetype<Qp>(0);
  }
  qp.pd = pd;
  qp.type = type == QpType.GSI ? QpType.UD : type;
  qp.sendCq = sendCq;
  qp.recvCq = recvCq;
  qp.maxSendSge = init.sendSge;
  qp.maxInline = init.inline;
  qp.signalAll = init.signalAll;
  qp.isAdaptive = type == QpType.RC;
  qp.windowLimit = MAX_WINDOW;
  qp.qpn = type == QpType.GSI ? GSI_QPN : newQpn(card);
  card.qps.add(qp.qpn, qp.ptr);
  pd.users++;
  sendCq.users++;
  recvCq.users++;
  if (qp.rq.isShared) qp.rq.users++;
  return qp;
}

export function destroyQp(qp: Qp): void {
  let card = Card.get();
  // drop all references to it: first the doorbell ring, then the list of ready queue pairs
  takeDoorbells();
  setState(qp, QpState.RESET, StateReason.DESTROY);
  detachAll(qp);
  Mr.unbindWindowsOf(card.keys, qp.qpn);
  card.events.purge(qp.ptr);
  card.qps.remove(qp.qpn);
  retireQpn(qp.qpn);
  qp.pd.users--;
  qp.sendCq.users--;
  qp.recvCq.users--;
  if (qp.rq.isShared) qp.rq.users--;
  releaseResources(qp);
  releaseRings(qp);
  releaseReorderBuffer();
}

function releaseRings(qp: Qp): void {
  if (qp.sqBase) release(qp.sqBase);
  if (qp.rq.ptr != 0 && !qp.rq.isShared) qp.rq.destroy();
  if (qp.recvWqe.ptr != 0) release(qp.recvWqe.ptr);
  release(qp.ptr);
}
