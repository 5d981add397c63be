// Queue pairs: made, moved from state to state, queried and destroyed.
#include <algorithm>

#include "address.h"
#include "card_codes.h"
#include "cardcall.h"
#include "context.h"
#include "mtu.h"
#include "objects.h"
#include "qpex.h"

namespace {

/// Rights that a queue pair's peer may have. Other bits concern memory.
constexpr uint32_t kRights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
/// Attributes of verbs that the card has: up to the peer's queue pair number.
constexpr int kKnownAttributes = (IBV_QP_DEST_QPN << 1) - 1;

uint32_t AtLeastOne(uint32_t value) { return std::max(value, 1u); }

/// The pieces of a request have room for inline data in their place. Programs count on it: rdma_xclient asks for none.
uint32_t InlineBytes(const ibv_qp_cap& cap) {
  const auto room = static_cast<uint32_t>(AtLeastOne(cap.max_send_sge) * sizeof(ibv_sge));
  return std::max(cap.max_inline_data, room);
}

bool IsTypeKnown(ibv_qp_type type) { return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD; }

/// Whether a queue pair can have such sizes. Programs give what they have read from ibv_query_device.
bool AreSizesValid(const ibv_qp_cap& cap) {
  return cap.max_send_wr <= MAX_WR && cap.max_recv_wr <= MAX_WR && cap.max_send_sge <= MAX_SGE &&
         cap.max_recv_sge <= MAX_SGE && cap.max_inline_data <= MAX_INLINE;
}

uint32_t Attribute(const Adapter& adapter, uint32_t attr) {
  return adapter.Read<uint32_t>(adapter.Scratch() + 4 * attr);
}

/// Reads the sizes as granted. qpQuery has written the attributes.
ibv_qp_cap CapOf(const Adapter& adapter) {
  ibv_qp_cap cap;
  cap.max_send_wr = Attribute(adapter, QpAttr::MAX_SEND_WR);
  cap.max_recv_wr = Attribute(adapter, QpAttr::MAX_RECV_WR);
  cap.max_send_sge = Attribute(adapter, QpAttr::MAX_SEND_SGE);
  cap.max_recv_sge = Attribute(adapter, QpAttr::MAX_RECV_SGE);
  cap.max_inline_data = Attribute(adapter, QpAttr::MAX_INLINE);
  return cap;
}

/// The attributes that ibv_create_qp and ibv_create_qp_ex share.
struct Wanted {
  ibv_pd* pd;
  void* qpContext;
  ibv_cq *sendCq, *recvCq;
  ibv_srq* srq;
  ibv_qp_cap cap;
  ibv_qp_type type;
  bool signalsAll;
};

Qp* Create(const Wanted& wanted) {
  if (!IsTypeKnown(wanted.type)) return RefuseWith(EOPNOTSUPP);
  const bool isWhole = wanted.pd != nullptr && wanted.sendCq != nullptr && wanted.recvCq != nullptr;
  if (!isWhole || !AreSizesValid(wanted.cap)) return RefuseWith(EINVAL);
  auto* qp = Make<Qp>();
  if (qp == nullptr) return nullptr;
  Adapter& adapter = AdapterOf(wanted.pd->context);
  const Adapter::Lock lock = adapter.Hold();
  const ibv_qp_cap& cap = wanted.cap;
  ibv_qp& base = qp->qp_base;
  const int refused = MakeInCard(adapter, base.handle, [&](w2c_card* card) {
    return w2c_card_qpCreate(card, wanted.pd->handle, wanted.type, wanted.sendCq->handle,
                             wanted.recvCq->handle, AtLeastOne(cap.max_send_wr), AtLeastOne(cap.max_recv_wr),
                             AtLeastOne(cap.max_send_sge), AtLeastOne(cap.max_recv_sge), InlineBytes(cap),
                             wanted.signalsAll, wanted.srq == nullptr ? 0 : wanted.srq->handle);
  });
  if (refused != 0) return Discard(qp, refused);
  adapter.Call([&](w2c_card* card) {
    w2c_card_qpQuery(card, base.handle);
    base.qp_num = w2c_card_qpNumber(card, base.handle);
  });
  qp->cap = CapOf(adapter);
  qp->signalsAll = wanted.signalsAll;
  base.context = wanted.pd->context;
  base.qp_context = wanted.qpContext;
  base.pd = wanted.pd;
  base.send_cq = wanted.sendCq;
  base.recv_cq = wanted.recvCq;
  base.srq = wanted.srq;
  base.state = IBV_QPS_RESET;
  base.qp_type = wanted.type;
  adapter.TheEvents().Register(qp);
  return qp;
}

ibv_qp* CreateQpEx(ibv_context*, ibv_qp_init_attr_ex* attr) {
  constexpr uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if ((attr->comp_mask & ~known) != 0) return RefuseWith(EOPNOTSUPP);
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) return RefuseWith(EINVAL);
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr->create_flags != 0) return RefuseWith(EOPNOTSUPP);
  const uint64_t operations = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? attr->send_ops_flags : 0;
  if ((operations & ~SendOperationsOf(attr->qp_type)) != 0) return RefuseWith(EOPNOTSUPP);
  Qp* qp = Create({attr->pd, attr->qp_context, attr->send_cq, attr->recv_cq, attr->srq, attr->cap, attr->qp_type,
                   attr->sq_sig_all != 0});
  if (qp == nullptr) return nullptr;
  attr->cap = qp->cap;
  SetSendOperations(*qp, operations);
  return qp->Base();
}

void WriteAttributes(Adapter& adapter, const ibv_qp_attr& attr) {
  const auto put = [&](uint32_t at, uint32_t value) { adapter.Write<uint32_t>(adapter.Scratch() + 4 * at, value); };
  put(QpAttr::STATE, attr.qp_state);
  put(QpAttr::CUR_STATE, attr.cur_qp_state);
  put(QpAttr::EN_SQD_ASYNC_NOTIFY, attr.en_sqd_async_notify);
  put(QpAttr::ACCESS_FLAGS, static_cast<uint32_t>(attr.qp_access_flags) & kRights);
  put(QpAttr::PKEY_INDEX, attr.pkey_index);
  put(QpAttr::PORT, attr.port_num);
  put(QpAttr::QKEY, attr.qkey);
  put(QpAttr::PATH_MTU, MtuBytes(attr.path_mtu));
  put(QpAttr::TIMEOUT, attr.timeout);
  put(QpAttr::RETRY_CNT, attr.retry_cnt);
  put(QpAttr::RNR_RETRY, attr.rnr_retry);
  put(QpAttr::RQ_PSN, attr.rq_psn & 0xffffff);
  put(QpAttr::MAX_QP_RD_ATOMIC, attr.max_rd_atomic);
  put(QpAttr::MIN_RNR_TIMER, attr.min_rnr_timer);
  put(QpAttr::SQ_PSN, attr.sq_psn & 0xffffff);
  put(QpAttr::MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic);
  put(QpAttr::DEST_QPN, attr.dest_qp_num);
}

ibv_qp_attr ReadAttributes(const Adapter& adapter, const Qp& qp) {
  const auto get = [&](uint32_t attribute) { return Attribute(adapter, attribute); };
  ibv_qp_attr attr{};
  attr.qp_state = static_cast<ibv_qp_state>(get(QpAttr::STATE));
  attr.cur_qp_state = attr.qp_state;
  attr.path_mtu = MtuCode(get(QpAttr::PATH_MTU));
  attr.path_mig_state = IBV_MIG_MIGRATED;
  attr.qkey = get(QpAttr::QKEY);
  attr.rq_psn = get(QpAttr::RQ_PSN);
  attr.sq_psn = get(QpAttr::SQ_PSN);
  attr.dest_qp_num = get(QpAttr::DEST_QPN);
  attr.qp_access_flags = get(QpAttr::ACCESS_FLAGS);
  attr.cap = qp.cap;
  attr.ah_attr = qp.ahAttr;
  attr.pkey_index = static_cast<uint16_t>(get(QpAttr::PKEY_INDEX));
  attr.en_sqd_async_notify = static_cast<uint8_t>(get(QpAttr::EN_SQD_ASYNC_NOTIFY));
  attr.sq_draining = attr.qp_state == IBV_QPS_SQD && get(QpAttr::SQ_PENDING) != 0;
  attr.max_rd_atomic = static_cast<uint8_t>(get(QpAttr::MAX_QP_RD_ATOMIC));
  attr.max_dest_rd_atomic = static_cast<uint8_t>(get(QpAttr::MAX_DEST_RD_ATOMIC));
  attr.min_rnr_timer = static_cast<uint8_t>(get(QpAttr::MIN_RNR_TIMER));
  attr.port_num = static_cast<uint8_t>(get(QpAttr::PORT));
  attr.timeout = static_cast<uint8_t>(get(QpAttr::TIMEOUT));
  attr.retry_cnt = static_cast<uint8_t>(get(QpAttr::RETRY_CNT));
  attr.rnr_retry = static_cast<uint8_t>(get(QpAttr::RNR_RETRY));
  return attr;
}

/// The card changes the state, too, when a request fails.
void UpdateState(Adapter& adapter, Qp& qp) {
  adapter.Call([&](w2c_card* card) {
    qp.qp_base.state = static_cast<ibv_qp_state>(w2c_card_qpState(card, qp.qp_base.handle));
  });
}

/// Programs that begin anew with a queue pair take the next completion for one of its new requests. Adapters remove the
/// old ones, too.
void ForgetCompletions(Adapter& adapter, const ibv_qp& qp) {
  for (const ibv_cq* cq : {qp.send_cq, qp.recv_cq})
    adapter.Call([&](w2c_card* card) { w2c_card_cqClean(card, cq->handle, qp.handle); });
}

}  // namespace

void SetQpOperations(Context& context) {
  context.create_qp_ex = CreateQpEx;
  SetPostOperations(context);
}

VERBS_API ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  Qp* qp = Create({pd, attr->qp_context, attr->send_cq, attr->recv_cq, attr->srq, attr->cap, attr->qp_type,
                   attr->sq_sig_all != 0});
  if (qp == nullptr) return nullptr;
  attr->cap = qp->cap;
  return qp->Base();
}

VERBS_API int ibv_modify_qp(ibv_qp* base, ibv_qp_attr* attr, int mask) {
  Qp* qp = QpOf(base);
  Adapter& adapter = AdapterOf(base->context);
  if ((mask & ~kKnownAttributes) != 0) return Answer(EOPNOTSUPP);
  const Adapter::Lock lock = adapter.Hold();
  if (mask & IBV_QP_AV) {
    if (const int wrong = CheckAddress(adapter, attr->ah_attr)) return Answer(wrong);
    const uint32_t remoteQpn = mask & IBV_QP_DEST_QPN ? attr->dest_qp_num : qp->destQpn;
    WriteAddress(adapter, attr->ah_attr, remoteQpn);
  }
  // such packets would be lost in silence
  if ((mask & IBV_QP_PATH_MTU) != 0 && MtuBytes(attr->path_mtu) > adapter.ThePort().ActiveMtu())
    return Answer(EINVAL);
  WriteAttributes(adapter, *attr);
  const int refused = CallCard(adapter, [&](w2c_card* card) {
    return w2c_card_qpModify(card, base->handle, static_cast<uint32_t>(mask));
  });
  if (refused != 0) return Answer(refused);
  if (mask & IBV_QP_AV) qp->ahAttr = attr->ah_attr;
  if (mask & IBV_QP_DEST_QPN) qp->destQpn = attr->dest_qp_num;
  if (mask & IBV_QP_QKEY) qp->qkey = attr->qkey;
  if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET) {
    qp->isExplained = false;
    qp->promised.clear();
    ForgetCompletions(adapter, *base);
  }
  UpdateState(adapter, *qp);
  adapter.Posted();
  return 0;
}

VERBS_API int ibv_query_qp(ibv_qp* base, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  Qp* qp = QpOf(base);
  Adapter& adapter = AdapterOf(base->context);
  const Adapter::Lock lock = adapter.Hold();
  if (!adapter.Call([&](w2c_card* card) { w2c_card_qpQuery(card, base->handle); })) return Answer(EIO);
  *attr = ReadAttributes(adapter, *qp);
  base->state = attr->qp_state;
  *init = {};
  init->qp_context = base->qp_context;
  init->send_cq = base->send_cq;
  init->recv_cq = base->recv_cq;
  init->srq = base->srq;
  init->cap = qp->cap;
  init->qp_type = base->qp_type;
  init->sq_sig_all = qp->signalsAll;
  return 0;
}

VERBS_API int ibv_destroy_qp(ibv_qp* base) {
  Qp* qp = QpOf(base);
  Adapter& adapter = AdapterOf(base->context);
  {
    const Adapter::Lock lock = adapter.Hold();
    // the last acknowledgements: the peer's requests may have arrived a moment ago
    adapter.Flush();
    adapter.Call([&](w2c_card* card) { w2c_card_qpDestroy(card, base->handle); });
    adapter.TheGroups().Remove(adapter, base->handle);
    adapter.TheEvents().Unregister(qp);
  }
  EndAcknowledging(qp);
  delete qp;
  return 0;
}

VERBS_API ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* base) {
  Qp* qp = QpOf(base);
  return qp->isExtended ? qp : nullptr;
}

/// Whether a program may poll the last byte of a message in place of its completion: nobody promises that here.
VERBS_API int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) { return 0; }

VERBS_API int ibv_set_ece(ibv_qp*, ibv_ece*) {
  return Answer(EOPNOTSUPP);
}

VERBS_API int ibv_query_ece(ibv_qp*, ibv_ece* ece) {
  *ece = {};
  return Answer(EOPNOTSUPP);
}
