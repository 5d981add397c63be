// Shared receive queues.
#include "cardcall.h"
#include "context.h"
#include "card_codes.h"
#include "objects.h"

namespace {

Srq* Create(ibv_pd* pd, void* srqContext, ibv_srq_attr& attr) {
  const bool isValid = attr.max_wr > 0 && attr.max_wr <= MAX_WR && attr.max_sge <= MAX_SGE;
  if (!isValid) return RefuseWith(EINVAL);
  auto* srq = Make<Srq>();
  if (srq == nullptr) return nullptr;
  const uint32_t sge = attr.max_sge == 0 ? 1 : attr.max_sge;
  Adapter& adapter = AdapterOf(pd->context);
  const Adapter::Lock lock = adapter.Hold();
  const int refused = MakeInCard(adapter, srq->handle, [&](w2c_card* card) {
    return w2c_card_srqCreate(card, pd->handle, attr.max_wr, sge);
  });
  if (refused != 0) return Discard(srq, refused);
  adapter.Call([&](w2c_card* card) { attr.max_wr = w2c_card_srqEntries(card, srq->handle); });
  attr.max_sge = srq->maxSge = sge;
  srq->context = pd->context;
  srq->srq_context = srqContext;
  srq->pd = pd;
  adapter.TheEvents().Register(srq);
  return srq;
}

ibv_srq* CreateSrqEx(ibv_context*, ibv_srq_init_attr_ex* attr) {
  constexpr uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  const bool isBasic = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0 || attr->srq_type == IBV_SRQT_BASIC;
  if ((attr->comp_mask & ~known) != 0 || !isBasic) return RefuseWith(EOPNOTSUPP);
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) return RefuseWith(EINVAL);
  return Create(attr->pd, attr->srq_context, attr->attr);
}

}  // namespace

void SetSrqOperations(Context& context) { context.create_srq_ex = CreateSrqEx; }

VERBS_API ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return Create(pd, attr->srq_context, attr->attr);
}

VERBS_API int ibv_modify_srq(ibv_srq* base, ibv_srq_attr* attr, int mask) {
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return Answer(EINVAL);
  const uint32_t handle = base->handle;
  Adapter& adapter = AdapterOf(base->context);
  const Adapter::Lock lock = adapter.Hold();
  if (mask & IBV_SRQ_MAX_WR)
    if (const int refused = CallCard(adapter, [&](w2c_card* card) { return w2c_card_srqResize(card, handle, attr->max_wr); }))
      return Answer(refused);
  if ((mask & IBV_SRQ_LIMIT) == 0) return 0;
  return CallCard(adapter, [&](w2c_card* card) { return w2c_card_srqLimit(card, handle, attr->srq_limit); });
}

VERBS_API int ibv_query_srq(ibv_srq* base, ibv_srq_attr* attr) {
  Srq* srq = SrqOf(base);
  Adapter& adapter = AdapterOf(base->context);
  const Adapter::Lock lock = adapter.Hold();
  const bool works = adapter.Call([&](w2c_card* card) {
    attr->max_wr = w2c_card_srqEntries(card, srq->handle);
    attr->srq_limit = w2c_card_srqCurrentLimit(card, srq->handle);
  });
  attr->max_sge = srq->maxSge;
  return Answer(works ? 0 : EIO);
}

VERBS_API int ibv_destroy_srq(ibv_srq* base) {
  Srq* srq = SrqOf(base);
  Adapter& adapter = AdapterOf(base->context);
  {
    const Adapter::Lock lock = adapter.Hold();
    const int refused = CallCard(adapter, [&](w2c_card* card) { return w2c_card_srqDestroy(card, srq->handle); });
    if (refused != 0 && !adapter.HasFailed()) return Answer(refused);
    adapter.TheEvents().Unregister(srq);
  }
  EndAcknowledging(srq);
  delete srq;
  return 0;
}
