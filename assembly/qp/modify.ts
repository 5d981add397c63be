// Modifies queue pairs: the state transitions, and the attributes that each requires and allows (IBTA 10.3, table 92).
import { Access, Errno, GSI_QKEY, GSI_QPN, QpState, QpType, StateReason } from '../codes';
import { Card } from '../host/card';
import { pkeyAt } from '../host/pkey';
import { QpAttr } from '../layout';
import { MAX_RD_ATOMIC, RETRY_INFINITE } from '../limits';
import { SCRATCH } from '../memorymap';
import { Path } from './path';
import { Qp } from './qp';
import { resizeResources } from './resource';
import { setState } from './state';
import { refillRetries } from './timer';

function bit(attribute: QpAttr): u32 {
  return 1 << attribute;
}

function attribute(index: QpAttr): u32 {
  return load<u32>(SCRATCH + ((<usize>index) << 2));
}

/** Returns the attributes of a transition: | required | optional |, or -1 when the transition does not exist. */
function transition(type: u32, from: QpState, to: QpState): u64 {
  if (to > QpState.ERR) return -1;
  if (to == QpState.RESET || (to == QpState.ERR && from != QpState.RESET)) return 0;
  if (type == QpType.UD) return udTransition(from, to);
  let isReliable = type == QpType.RC;
  let common = bit(QpAttr.ACCESS_FLAGS) | (isReliable ? bit(QpAttr.MIN_RNR_TIMER) : 0);
  let start = bit(QpAttr.PKEY_INDEX) | bit(QpAttr.PORT) | bit(QpAttr.ACCESS_FLAGS);
  switch ((from << 4) | to) {
    case (QpState.RESET << 4) | QpState.INIT:
      return attributes(start, 0);
    case (QpState.INIT << 4) | QpState.INIT:
      return attributes(0, start);
    case (QpState.INIT << 4) | QpState.RTR: {
      let path = bit(QpAttr.AV) | bit(QpAttr.PATH_MTU) | bit(QpAttr.DEST_QPN) | bit(QpAttr.RQ_PSN);
      if (isReliable) path |= bit(QpAttr.MAX_DEST_RD_ATOMIC) | bit(QpAttr.MIN_RNR_TIMER);
      return attributes(path, bit(QpAttr.ACCESS_FLAGS) | bit(QpAttr.PKEY_INDEX));
    }
    case (QpState.RTR << 4) | QpState.RTS:
      return attributes(bit(QpAttr.SQ_PSN) | (isReliable ? RETRY_ATTRIBUTES : 0), common);
    case (QpState.RTS << 4) | QpState.RTS:
    case (QpState.SQD << 4) | QpState.RTS:
      return attributes(0, common);
    case (QpState.SQE << 4) | QpState.RTS:
      // only an unreliable queue pair has this state
      return isReliable ? -1 : attributes(0, bit(QpAttr.ACCESS_FLAGS));
    case (QpState.RTS << 4) | QpState.SQD:
      return attributes(0, bit(QpAttr.EN_SQD_ASYNC_NOTIFY));
    case (QpState.SQD << 4) | QpState.SQD: {
      let attributesInSqd = common | bit(QpAttr.AV) | bit(QpAttr.PKEY_INDEX);
      if (isReliable) attributesInSqd |= RETRY_ATTRIBUTES | bit(QpAttr.PORT) | bit(QpAttr.MAX_DEST_RD_ATOMIC);
      return attributes(0, attributesInSqd);
    }
  }
  return -1;
}

const RETRY_ATTRIBUTES: u32 =
  (1 << QpAttr.TIMEOUT) | (1 << QpAttr.RETRY_CNT) | (1 << QpAttr.RNR_RETRY) | (1 << QpAttr.MAX_QP_RD_ATOMIC);

function udTransition(from: QpState, to: QpState): u64 {
  let start = bit(QpAttr.PKEY_INDEX) | bit(QpAttr.PORT) | bit(QpAttr.QKEY);
  let keys = bit(QpAttr.PKEY_INDEX) | bit(QpAttr.QKEY);
  switch ((from << 4) | to) {
    case (QpState.RESET << 4) | QpState.INIT:
      return attributes(start, 0);
    case (QpState.INIT << 4) | QpState.INIT:
      return attributes(0, start);
    case (QpState.INIT << 4) | QpState.RTR:
      return attributes(0, keys);
    case (QpState.RTR << 4) | QpState.RTS:
      return attributes(bit(QpAttr.SQ_PSN), bit(QpAttr.QKEY));
    case (QpState.RTS << 4) | QpState.RTS:
    case (QpState.SQD << 4) | QpState.RTS:
    case (QpState.SQE << 4) | QpState.RTS:
      return attributes(0, bit(QpAttr.QKEY));
    case (QpState.RTS << 4) | QpState.SQD:
      return attributes(0, bit(QpAttr.EN_SQD_ASYNC_NOTIFY));
    case (QpState.SQD << 4) | QpState.SQD:
      return attributes(0, keys);
  }
  return -1;
}

function attributes(required: u32, optional: u32): u64 {
  return ((<u64>required) << 32) | <u64>optional;
}

function isMtu(value: u32): bool {
  return value >= 256 && value <= 4096 && popcnt<u32>(value) == 1;
}

/** Returns the attributes of `mask` whose values are out of range. */
function outOfRange(qp: Qp, mask: u32): u32 {
  let wrong: u32 = 0;
  if (attribute(QpAttr.CUR_STATE) != <u32>qp.state) wrong |= bit(QpAttr.CUR_STATE);
  let rights: u32 =
    Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.FLUSH_GLOBAL;
  if (attribute(QpAttr.ACCESS_FLAGS) & ~rights) wrong |= bit(QpAttr.ACCESS_FLAGS);
  if (pkeyAt(attribute(QpAttr.PKEY_INDEX)) == 0) wrong |= bit(QpAttr.PKEY_INDEX);
  if (attribute(QpAttr.PORT) != 1) wrong |= bit(QpAttr.PORT);
  if (!Path.isVectorValid()) wrong |= bit(QpAttr.AV);
  if (!isMtu(attribute(QpAttr.PATH_MTU))) wrong |= bit(QpAttr.PATH_MTU);
  if (attribute(QpAttr.TIMEOUT) > 31) wrong |= bit(QpAttr.TIMEOUT);
  let retryCnt = attribute(QpAttr.RETRY_CNT);
  if (retryCnt > 7 && retryCnt != RETRY_INFINITE) wrong |= bit(QpAttr.RETRY_CNT);
  if (attribute(QpAttr.RNR_RETRY) > 7) wrong |= bit(QpAttr.RNR_RETRY);
  if (attribute(QpAttr.MIN_RNR_TIMER) > 31) wrong |= bit(QpAttr.MIN_RNR_TIMER);
  if (attribute(QpAttr.RQ_PSN) > 0xffffff) wrong |= bit(QpAttr.RQ_PSN);
  if (attribute(QpAttr.SQ_PSN) > 0xffffff) wrong |= bit(QpAttr.SQ_PSN);
  if (qp.qpn == GSI_QPN && attribute(QpAttr.QKEY) != GSI_QKEY) wrong |= bit(QpAttr.QKEY);
  if (attribute(QpAttr.DEST_QPN) > 0xffffff) wrong |= bit(QpAttr.DEST_QPN);
  if (attribute(QpAttr.MAX_QP_RD_ATOMIC) > MAX_RD_ATOMIC) wrong |= bit(QpAttr.MAX_QP_RD_ATOMIC);
  if (attribute(QpAttr.MAX_DEST_RD_ATOMIC) > MAX_RD_ATOMIC) wrong |= bit(QpAttr.MAX_DEST_RD_ATOMIC);
  return wrong & mask;
}

/** Modifies the attributes at scratch(), all or none. A `mask` without STATE keeps the state. */
export function modifyQp(qp: Qp, mask: u32): Errno {
  let card = Card.get();
  let to = mask & bit(QpAttr.STATE) ? <QpState>attribute(QpAttr.STATE) : qp.state;
  let allowedMove = transition(qp.type, qp.state, to);
  card.refusedMissing = 0;
  card.refusedForbidden = 0;
  card.refusedRange = 0;
  if (allowedMove == <u64>-1) {
    card.refusedForbidden = bit(QpAttr.STATE);
    return Errno.EINVAL;
  }
  let required = <u32>(allowedMove >> 32);
  let allowed = required | <u32>allowedMove | bit(QpAttr.STATE) | bit(QpAttr.CUR_STATE);
  card.refusedMissing = required & ~mask;
  card.refusedForbidden = mask & ~allowed;
  card.refusedRange = outOfRange(qp, mask);
  if (card.refusedMissing | card.refusedForbidden | card.refusedRange) return Errno.EINVAL;
  let depth = attribute(QpAttr.MAX_DEST_RD_ATOMIC);
  if (mask & bit(QpAttr.MAX_DEST_RD_ATOMIC) && (qp.resources == 0 || depth != qp.maxDestRdAtomic))
    if (!resizeResources(qp, depth)) return Errno.ENOMEM;
  assign(qp, mask);
  if (to == QpState.SQD && qp.state != QpState.SQD)
    qp.isDrainEventWanted = (mask & bit(QpAttr.EN_SQD_ASYNC_NOTIFY)) != 0 && attribute(QpAttr.EN_SQD_ASYNC_NOTIFY) != 0;
  setState(qp, to, StateReason.MODIFY);
  return Errno.OK;
}

function assign(qp: Qp, mask: u32): void {
  if (mask & bit(QpAttr.ACCESS_FLAGS)) qp.access = attribute(QpAttr.ACCESS_FLAGS);
  if (mask & bit(QpAttr.PKEY_INDEX)) {
    qp.pkeyIndex = attribute(QpAttr.PKEY_INDEX);
    qp.pkey = pkeyAt(qp.pkeyIndex);
  }
  if (mask & bit(QpAttr.PORT)) qp.port = attribute(QpAttr.PORT);
  if (mask & bit(QpAttr.QKEY)) qp.qkey = attribute(QpAttr.QKEY);
  if (mask & bit(QpAttr.AV)) qp.path.load(true);
  if (mask & bit(QpAttr.PATH_MTU)) qp.mtu = attribute(QpAttr.PATH_MTU);
  if (mask & bit(QpAttr.DEST_QPN)) qp.destQpn = attribute(QpAttr.DEST_QPN);
  if (mask & bit(QpAttr.RQ_PSN)) qp.rqPsn = qp.ePsn = attribute(QpAttr.RQ_PSN);
  if (mask & bit(QpAttr.MIN_RNR_TIMER)) qp.minRnrTimer = attribute(QpAttr.MIN_RNR_TIMER);
  if (mask & bit(QpAttr.MAX_DEST_RD_ATOMIC)) qp.maxDestRdAtomic = attribute(QpAttr.MAX_DEST_RD_ATOMIC);
  if (mask & bit(QpAttr.MAX_QP_RD_ATOMIC)) qp.maxRdAtomic = attribute(QpAttr.MAX_QP_RD_ATOMIC);
  if (mask & bit(QpAttr.TIMEOUT)) qp.timeout = attribute(QpAttr.TIMEOUT);
  if (mask & bit(QpAttr.RETRY_CNT)) qp.retryCnt = <u8>attribute(QpAttr.RETRY_CNT);
  if (mask & bit(QpAttr.RNR_RETRY)) qp.rnrRetry = <u8>attribute(QpAttr.RNR_RETRY);
  if (mask & bit(QpAttr.SQ_PSN)) {
    let psn = attribute(QpAttr.SQ_PSN);
    qp.sqPsn = qp.sendPsn = qp.allocPsn = qp.unsentPsn = qp.unackedPsn = psn;
  }
  if (mask & (bit(QpAttr.RETRY_CNT) | bit(QpAttr.RNR_RETRY))) refillRetries(qp);
}
