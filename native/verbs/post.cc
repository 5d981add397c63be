#include "post.h"

#include "address.h"
#include "card_codes.h"
#include "cardcall.h"
#include "context.h"
#include "strict.h"

namespace {

/// Flags that the card has. IBV_SEND_IP_CSUM is for raw packets.
constexpr unsigned kFlags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
/// A Q_Key with this bit is the queue pair's own (IBTA 10.2.5).
constexpr uint32_t kOwnQkey = 1u << 31;

/// The card keeps the number of a request as the bits of a double.
double NumberOf(uint64_t wrId) {
  double number;
  memcpy(&number, &wrId, sizeof number);
  return number;
}

uint64_t InlineBytes(const ibv_send_wr& request) {
  uint64_t bytes = 0;
  for (int i = 0; i < request.num_sge; i++) bytes += request.sg_list[i].length;
  return bytes;
}

/// Copies the data of an inline request. @returns whether it fits
bool CopyInline(Adapter& adapter, w2c_card* card, const Qp& qp, const ibv_send_wr& request) {
  const uint64_t bytes = InlineBytes(request);
  if (bytes > MAX_INLINE) return false;
  uint32_t to = w2c_card_sqInline(card, qp.qp_base.handle, static_cast<uint32_t>(bytes));
  if (to == 0) return false;
  for (int i = 0; i < request.num_sge; i++) {
    const ibv_sge& sge = request.sg_list[i];
    if (sge.length > 0) memcpy(adapter.At(to), reinterpret_cast<const void*>(sge.addr), sge.length);
    to += sge.length;
  }
  return true;
}

/// Sets what the operation needs besides data. @returns 0 or an errno
uint32_t Describe(w2c_card* card, const Qp& qp, const ibv_send_wr& request) {
  const uint32_t handle = qp.qp_base.handle;
  switch (request.opcode) {
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      w2c_card_sqImm(card, handle, request.imm_data);
      [[fallthrough]];
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_WRITE:
      w2c_card_sqRemote(card, handle, High(request.wr.rdma.remote_addr), Low(request.wr.rdma.remote_addr),
                        request.wr.rdma.rkey);
      return 0;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: {
      const auto& atomic = request.wr.atomic;
      w2c_card_sqRemote(card, handle, High(atomic.remote_addr), Low(atomic.remote_addr), atomic.rkey);
      w2c_card_sqAtomic(card, handle, High(atomic.compare_add), Low(atomic.compare_add), High(atomic.swap),
                        Low(atomic.swap));
      return 0;
    }
    case IBV_WR_SEND_WITH_IMM:
      w2c_card_sqImm(card, handle, request.imm_data);
      return 0;
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_LOCAL_INV:
      w2c_card_sqImm(card, handle, request.invalidate_rkey);
      return 0;
    case IBV_WR_BIND_MW: {
      const auto& bind = request.bind_mw;
      const ibv_mw_bind_info& info = bind.bind_info;
      if (info.length > UINT32_MAX || (info.mr == nullptr && info.length != 0)) return EINVAL;
      const uint32_t lkey = info.mr == nullptr ? 0 : info.mr->lkey;
      // a window has no local rights, and adapters do not mind that programs ask for them
      w2c_card_sqBind(card, handle, bind.rkey, lkey, High(info.addr), Low(info.addr),
                      static_cast<uint32_t>(info.length), info.mw_access_flags & ~IBV_ACCESS_LOCAL_WRITE);
      return 0;
    }
    case IBV_WR_SEND:
      return 0;
    default:
      return EOPNOTSUPP;
  }
}

int PostToCard(Adapter& adapter, Qp& qp, const ibv_send_wr& request) {
  if (request.num_sge < 0 || static_cast<uint32_t>(request.num_sge) > MAX_SGE) return EINVAL;
  const auto& ud = request.wr.ud;
  const bool isDatagram = qp.qp_base.qp_type == IBV_QPT_UD;
  if (isDatagram && ud.ah == nullptr) return EINVAL;
  const uint32_t ah = isDatagram ? HandleTo(adapter, *AhOf(ud.ah), ud.remote_qpn) : 0;
  return CallCard(adapter, [&](w2c_card* card) -> uint32_t {
    const uint32_t handle = qp.qp_base.handle;
    const auto opcode = static_cast<uint32_t>(request.opcode);
    if (w2c_card_sqBegin(card, handle, NumberOf(request.wr_id), opcode, request.send_flags & kFlags) == 0)
      return w2c_card_lastErrno(card);
    if (request.send_flags & IBV_SEND_INLINE) {
      if (!CopyInline(adapter, card, qp, request)) return EINVAL;
    } else {
      for (int i = 0; i < request.num_sge; i++) {
        const ibv_sge& sge = request.sg_list[i];
        const uint64_t place = adapter.Keys().PlaceOf(sge.addr, sge.lkey);
        w2c_card_sqSge(card, handle, High(place), Low(place), sge.length, sge.lkey);
      }
    }
    if (const uint32_t wrong = Describe(card, qp, request)) return wrong;
    if (isDatagram) {
      const uint32_t qkey = ud.remote_qkey & kOwnQkey ? qp.qkey : ud.remote_qkey;
      w2c_card_sqDatagram(card, handle, ah, ud.remote_qpn, qkey, 0);
    }
    return w2c_card_sqCommit(card, handle);
  });
}

int PostSendList(ibv_qp* base, ibv_send_wr* request, ibv_send_wr** bad) {
  Adapter& adapter = AdapterOf(base->context);
  const Adapter::Lock lock = adapter.Hold();
  int refused = 0;
  for (; request != nullptr && refused == 0; request = request->next) {
    refused = PostSend(adapter, *QpOf(base), *request);
    if (refused != 0) *bad = request;
  }
  adapter.Posted();
  return Answer(refused);
}

/// The calls of the card that post receives to a queue.
struct RecvCalls {
  u32 (*begin)(w2c_card* card, u32 queue, f64 wrId);
  void (*sge)(w2c_card* card, u32 queue, u32 high, u32 low, u32 length, u32 lkey);
  u32 (*commit)(w2c_card* card, u32 queue);
};

int PostRecvToCard(Adapter& adapter, const RecvCalls& calls, uint32_t queue, const ibv_recv_wr& request) {
  if (request.num_sge < 0 || static_cast<uint32_t>(request.num_sge) > MAX_SGE) return EINVAL;
  return CallCard(adapter, [&](w2c_card* card) -> uint32_t {
    if (calls.begin(card, queue, NumberOf(request.wr_id)) == 0) return w2c_card_lastErrno(card);
    for (int i = 0; i < request.num_sge; i++) {
      const ibv_sge& sge = request.sg_list[i];
      const uint64_t place = adapter.Keys().PlaceOf(sge.addr, sge.lkey);
      calls.sge(card, queue, High(place), Low(place), sge.length, sge.lkey);
    }
    return calls.commit(card, queue);
  });
}

/// @param maxSge pieces that a receive of the queue may have
int PostRecvList(ibv_context* context, const RecvCalls& calls, uint32_t queue, uint32_t maxSge, ibv_recv_wr* request,
                 ibv_recv_wr** bad) {
  Adapter& adapter = AdapterOf(context);
  const Adapter::Lock lock = adapter.Hold();
  int refused = 0;
  for (; request != nullptr && refused == 0; request = request->next) {
    refused = PostRecvToCard(adapter, calls, queue, *request);
    CheckReceive(*request, maxSge, refused);
    if (refused != 0) *bad = request;
  }
  return Answer(refused);
}

int PostQpRecv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad) {
  if (qp->srq != nullptr) {
    *bad = request;
    return Answer(EINVAL);
  }
  static constexpr RecvCalls calls{w2c_card_rqBegin, w2c_card_rqSge, w2c_card_rqCommit};
  return PostRecvList(qp->context, calls, qp->handle, QpOf(qp)->cap.max_recv_sge, request, bad);
}

int PostSrqRecv(ibv_srq* srq, ibv_recv_wr* request, ibv_recv_wr** bad) {
  static constexpr RecvCalls calls{w2c_card_srqBegin, w2c_card_srqSge, w2c_card_srqCommit};
  return PostRecvList(srq->context, calls, srq->handle, SrqOf(srq)->maxSge, request, bad);
}

/// Binds a memory window of type 1, under its next key.
int BindMw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  if (mw->type != IBV_MW_TYPE_1) return Answer(EINVAL);
  ibv_send_wr request{};
  request.wr_id = bind->wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind->send_flags;
  request.bind_mw.mw = mw;
  request.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  request.bind_mw.bind_info = bind->bind_info;
  ibv_send_wr* bad;
  const int refused = PostSendList(qp, &request, &bad);
  if (refused == 0) mw->rkey = request.bind_mw.rkey;
  return refused;
}

}  // namespace

int PostSend(Adapter& adapter, Qp& qp, const ibv_send_wr& request) {
  const int refused = PostToCard(adapter, qp, request);
  CheckSend(qp, request, refused);
  return refused;
}

void SetPostOperations(Context& context) {
  ibv_context_ops& ops = context.context.ops;
  ops.post_send = PostSendList;
  ops.post_recv = PostQpRecv;
  ops.post_srq_recv = PostSrqRecv;
  ops.bind_mw = BindMw;
}
