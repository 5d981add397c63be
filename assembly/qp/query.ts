// Writes a queue pair's attributes and progress to scratch().
import { QpAttr } from '../layout';
import { SCRATCH } from '../memorymap';
import { creditsLeft } from './credit';
import { Qp } from './qp';

function put(index: QpAttr, value: u32): void {
  store<u32>(SCRATCH + ((<usize>index) << 2), value);
}

export function queryQp(qp: Qp): void {
  put(QpAttr.STATE, qp.state);
  put(QpAttr.CUR_STATE, qp.state);
  put(QpAttr.EN_SQD_ASYNC_NOTIFY, qp.isDrainEventWanted ? 1 : 0);
  put(QpAttr.ACCESS_FLAGS, qp.access);
  put(QpAttr.PKEY_INDEX, qp.pkeyIndex);
  put(QpAttr.PORT, qp.port);
  put(QpAttr.QKEY, qp.qkey);
  put(QpAttr.PATH_MTU, qp.mtu);
  put(QpAttr.TIMEOUT, qp.timeout);
  put(QpAttr.RETRY_CNT, qp.retryCnt);
  put(QpAttr.RNR_RETRY, qp.rnrRetry);
  put(QpAttr.RQ_PSN, qp.rqPsn);
  put(QpAttr.MAX_QP_RD_ATOMIC, qp.maxRdAtomic);
  put(QpAttr.MIN_RNR_TIMER, qp.minRnrTimer);
  put(QpAttr.SQ_PSN, qp.sqPsn);
  put(QpAttr.MAX_DEST_RD_ATOMIC, qp.maxDestRdAtomic);
  put(QpAttr.DEST_QPN, qp.destQpn);
  put(QpAttr.QPN, qp.qpn);
  put(QpAttr.TYPE, qp.type);
  put(QpAttr.SQ_PENDING, qp.sqHead - qp.sqTail);
  // a shared receive queue does not belong to the queue pair
  put(QpAttr.RQ_PENDING, qp.rq.isShared ? 0 : qp.rq.filled);
  put(QpAttr.RETRY_LEFT, qp.retryLeft);
  put(QpAttr.RNR_LEFT, qp.rnrLeft);
  put(QpAttr.UNACKED_PSN, qp.unackedPsn);
  put(QpAttr.NEXT_PSN, qp.allocPsn);
  put(QpAttr.EXPECTED_PSN, qp.ePsn);
  put(QpAttr.MSN, qp.msn);
  put(QpAttr.WINDOW, qp.window);
  put(QpAttr.LAST_SYNDROME, qp.lastSyndrome);
  put(QpAttr.MAX_SEND_WR, qp.sqMask + 1);
  put(QpAttr.MAX_RECV_WR, qp.rq.isShared ? 0 : qp.rq.entries);
  put(QpAttr.MAX_SEND_SGE, qp.maxSendSge);
  put(QpAttr.MAX_RECV_SGE, qp.rq.isShared ? 0 : qp.rq.maxSge);
  put(QpAttr.MAX_INLINE, qp.maxInline);
  put(QpAttr.CREDITS, creditsLeft(qp));
  put(QpAttr.WAITS_FOR_CREDITS, qp.isWaitingForCredits ? 1 : 0);
  put(QpAttr.RATE, <u32>(qp.rate / 1000));
  put(QpAttr.ROUND_TRIP, qp.srtt);
  qp.path.query();
}
