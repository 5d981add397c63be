// Completion queues: made, polled, armed, resized, and polled by the extended calls (ibv_start_poll).
#include "card_codes.h"
#include "cardcall.h"
#include "completion.h"
#include "context.h"
#include "objects.h"

namespace {

/// Returns the oldest completion, or 0. Takes a turn if there is none.
uint32_t Oldest(Adapter& adapter, Cq* cq) {
  uint32_t cqe = 0;
  const auto peek = [&](w2c_card* card) { cqe = w2c_card_cqPeek(card, cq->handle); };
  adapter.Call(peek);
  adapter.Poll(cqe == 0);
  if (cqe == 0) adapter.Call(peek);
  return cqe;
}

int PollCq(ibv_cq* base, int most, ibv_wc* wc) {
  Cq* cq = CqOf(base);
  Adapter& adapter = AdapterOf(base->context);
  const Adapter::Lock lock = adapter.Hold();
  int count = 0;
  uint32_t cqe = most > 0 ? Oldest(adapter, cq) : 0;
  while (cqe != 0) {
    ReadCompletion(adapter, cqe, wc[count++]);
    adapter.Call([&](w2c_card* card) {
      w2c_card_cqPop(card, cq->handle);
      cqe = count < most ? w2c_card_cqPeek(card, cq->handle) : 0;
    });
    if (adapter.HasFailed()) break;
  }
  return count;
}

int RequestNotify(ibv_cq* base, int solicitedOnly) {
  Adapter& adapter = AdapterOf(base->context);
  const Adapter::Lock lock = adapter.Hold();
  const bool works = adapter.Call([&](w2c_card* card) { w2c_card_cqArm(card, base->handle, solicitedOnly != 0); });
  adapter.ExpectsEvents();
  return Answer(works ? 0 : EIO);
}

/// Makes a queue in the card. @returns null and errno
Cq* Create(ibv_context* context, uint32_t entries, void* cqContext, ibv_comp_channel* channel) {
  if (entries == 0 || entries > MAX_CQE) return RefuseWith(EINVAL);
  auto* cq = Make<Cq>();
  if (cq == nullptr) return nullptr;
  Adapter& adapter = AdapterOf(context);
  const Adapter::Lock lock = adapter.Hold();
  const int refused =
      MakeInCard(adapter, cq->handle, [&](w2c_card* card) { return w2c_card_cqCreate(card, entries); });
  if (refused != 0) return Discard(cq, refused);
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = cqContext;
  cq->cqe = static_cast<int>(entries);
  if (channel != nullptr) channel->refcnt++;
  adapter.TheEvents().Register(cq);
  return cq;
}

// ---- The extended calls. A poll has the queue's own lock from a successful start to its end; the program may post
// ---- meanwhile.

bool Step(Cq* cq) {
  Adapter& adapter = AdapterOf(cq->context);
  const Adapter::Lock lock = adapter.Hold();
  const uint32_t cqe = Oldest(adapter, cq);
  if (cqe == 0) return false;
  ReadCompletion(adapter, cqe, cq->current);
  adapter.Call([&](w2c_card* card) { w2c_card_cqPop(card, cq->handle); });
  cq->status = cq->current.status;
  cq->wr_id = cq->current.wr_id;
  return true;
}

int StartPoll(ibv_cq_ex* base, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return EINVAL;
  auto* cq = static_cast<Cq*>(base);
  std::unique_lock<std::mutex> polling(cq->polling);
  if (!Step(cq)) return ENOENT;
  // EndPoll unlocks it
  polling.release();
  return 0;
}

int NextPoll(ibv_cq_ex* cq) { return Step(static_cast<Cq*>(cq)) ? 0 : ENOENT; }
void EndPoll(ibv_cq_ex* cq) { static_cast<Cq*>(cq)->polling.unlock(); }

const ibv_wc& Current(ibv_cq_ex* cq) { return static_cast<Cq*>(cq)->current; }

ibv_wc_opcode ReadOpcode(ibv_cq_ex* cq) { return Current(cq).opcode; }
uint32_t ReadVendorErr(ibv_cq_ex* cq) { return Current(cq).vendor_err; }
uint32_t ReadByteLen(ibv_cq_ex* cq) { return Current(cq).byte_len; }
__be32 ReadImmData(ibv_cq_ex* cq) { return Current(cq).imm_data; }
uint32_t ReadQpNum(ibv_cq_ex* cq) { return Current(cq).qp_num; }
uint32_t ReadSrcQp(ibv_cq_ex* cq) { return Current(cq).src_qp; }
unsigned ReadWcFlags(ibv_cq_ex* cq) { return Current(cq).wc_flags; }
uint32_t ReadSlid(ibv_cq_ex* cq) { return Current(cq).slid; }
uint8_t ReadSl(ibv_cq_ex* cq) { return Current(cq).sl; }
uint8_t ReadDlidPathBits(ibv_cq_ex* cq) { return Current(cq).dlid_path_bits; }

ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  constexpr uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  if ((attr->comp_mask & ~known) != 0 || attr->comp_vector != 0) return RefuseWith(EINVAL);
  // no time stamps, no flow tags, no tags
  if ((attr->wc_flags & ~uint64_t{IBV_WC_STANDARD_FLAGS}) != 0) return RefuseWith(EOPNOTSUPP);
  const uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
  // a lock costs little, so a queue of one thread has it, too
  constexpr uint32_t knownFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  if ((flags & ~knownFlags) != 0) return RefuseWith(EOPNOTSUPP);
  Cq* cq = Create(context, attr->cqe, attr->cq_context, attr->channel);
  if (cq == nullptr) return nullptr;
  cq->start_poll = StartPoll;
  cq->next_poll = NextPoll;
  cq->end_poll = EndPoll;
  cq->read_opcode = ReadOpcode;
  cq->read_vendor_err = ReadVendorErr;
  cq->read_byte_len = ReadByteLen;
  cq->read_imm_data = ReadImmData;
  cq->read_qp_num = ReadQpNum;
  cq->read_src_qp = ReadSrcQp;
  cq->read_wc_flags = ReadWcFlags;
  cq->read_slid = ReadSlid;
  cq->read_sl = ReadSl;
  cq->read_dlid_path_bits = ReadDlidPathBits;
  return cq;
}

}  // namespace

void SetCqOperations(Context& context) {
  context.create_cq_ex = CreateCqEx;
  context.context.ops.poll_cq = PollCq;
  context.context.ops.req_notify_cq = RequestNotify;
}

VERBS_API ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cqContext, ibv_comp_channel* channel,
                                int vector) {
  if (entries <= 0 || vector != 0) return RefuseWith(EINVAL);
  Cq* cq = Create(context, static_cast<uint32_t>(entries), cqContext, channel);
  return cq == nullptr ? nullptr : cq->Base();
}

VERBS_API int ibv_resize_cq(ibv_cq* base, int entries) {
  if (entries <= 0) return Answer(EINVAL);
  Adapter& adapter = AdapterOf(base->context);
  const Adapter::Lock lock = adapter.Hold();
  const int refused = CallCard(adapter, [&](w2c_card* card) {
    return w2c_card_cqResize(card, base->handle, static_cast<uint32_t>(entries));
  });
  if (refused == 0) base->cqe = entries;
  return Answer(refused);
}

VERBS_API int ibv_destroy_cq(ibv_cq* base) {
  Cq* cq = CqOf(base);
  Adapter& adapter = AdapterOf(base->context);
  {
    const Adapter::Lock lock = adapter.Hold();
    const int refused = CallCard(adapter, [&](w2c_card* card) { return w2c_card_cqDestroy(card, cq->handle); });
    if (refused != 0 && !adapter.HasFailed()) return Answer(refused);
    adapter.TheEvents().Unregister(cq);
    if (cq->channel != nullptr) cq->channel->refcnt--;
  }
  EndAcknowledging(cq);
  delete cq;
  return 0;
}
