#include "qpex.h"

#include "card_codes.h"
#include "post.h"

namespace {

Qp& Of(ibv_qp_ex* qp) { return static_cast<Qp&>(*qp); }

/// Begins the description of a request.
ibv_send_wr& Begin(ibv_qp_ex* base, ibv_wr_opcode opcode) {
  Qp& qp = Of(base);
  if (qp.describedCount == qp.described.size()) qp.described.emplace_back();
  Described& next = qp.described[qp.describedCount++];
  next.sges.clear();
  next.inlineData.clear();
  next.request = {};
  next.request.wr_id = base->wr_id;
  next.request.opcode = opcode;
  // data becomes inline by the call that sets it
  next.request.send_flags = base->wr_flags & ~static_cast<unsigned>(IBV_SEND_INLINE);
  return next.request;
}

/// Returns the request that is described. @returns null if a call sets something before there is one
Described* Last(ibv_qp_ex* base) {
  Qp& qp = Of(base);
  if (qp.describedCount > 0) return &qp.described[qp.describedCount - 1];
  if (qp.describeError == 0) qp.describeError = EINVAL;
  return nullptr;
}

void Rdma(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t rkey, uint64_t address) {
  ibv_send_wr& request = Begin(qp, opcode);
  request.wr.rdma.rkey = rkey;
  request.wr.rdma.remote_addr = address;
}

void Atomic(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t rkey, uint64_t address, uint64_t first, uint64_t swap) {
  auto& atomic = Begin(qp, opcode).wr.atomic;
  atomic.rkey = rkey;
  atomic.remote_addr = address;
  atomic.compare_add = first;
  atomic.swap = swap;
}

void CompareSwap(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap) {
  Atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address, compare, swap);
}

void FetchAdd(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t add) {
  Atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address, add, 0);
}

void BindMw(ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
  ibv_send_wr& request = Begin(qp, IBV_WR_BIND_MW);
  request.bind_mw.mw = mw;
  request.bind_mw.rkey = rkey;
  request.bind_mw.bind_info = *info;
}

void LocalInv(ibv_qp_ex* qp, uint32_t rkey) { Begin(qp, IBV_WR_LOCAL_INV).invalidate_rkey = rkey; }
void Read(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) { Rdma(qp, IBV_WR_RDMA_READ, rkey, address); }
void Write(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) { Rdma(qp, IBV_WR_RDMA_WRITE, rkey, address); }

void WriteImm(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, __be32 data) {
  Rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address);
  Last(qp)->request.imm_data = data;
}

void Send(ibv_qp_ex* qp) { Begin(qp, IBV_WR_SEND); }
void SendImm(ibv_qp_ex* qp, __be32 data) { Begin(qp, IBV_WR_SEND_WITH_IMM).imm_data = data; }
void SendInv(ibv_qp_ex* qp, uint32_t rkey) { Begin(qp, IBV_WR_SEND_WITH_INV).invalidate_rkey = rkey; }

void SetUdAddress(ibv_qp_ex* qp, ibv_ah* ah, uint32_t remoteQpn, uint32_t remoteQkey) {
  if (Described* last = Last(qp)) last->request.wr.ud = {ah, remoteQpn, remoteQkey};
}

void SetInlineList(ibv_qp_ex* qp, size_t count, const ibv_data_buf* buffers) {
  Described* last = Last(qp);
  if (last == nullptr) return;
  last->request.send_flags |= IBV_SEND_INLINE;
  for (size_t i = 0; i < count; i++) {
    // a longer one is refused when it is posted
    const auto* from = static_cast<const uint8_t*>(buffers[i].addr);
    const size_t bytes = buffers[i].length < MAX_INLINE ? buffers[i].length : MAX_INLINE + 1;
    last->inlineData.insert(last->inlineData.end(), from, from + bytes);
  }
}

void SetInline(ibv_qp_ex* qp, void* address, size_t length) {
  const ibv_data_buf buffer{address, length};
  SetInlineList(qp, 1, &buffer);
}

void AtomicWrite(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, const void* value) {
  Rdma(qp, IBV_WR_ATOMIC_WRITE, rkey, address);
  SetInline(qp, const_cast<void*>(value), sizeof(uint64_t));
}

void SetSgeList(ibv_qp_ex* qp, size_t count, const ibv_sge* sges) {
  if (Described* last = Last(qp)) last->sges.assign(sges, sges + count);
}

void SetSge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  const ibv_sge sge{address, length, lkey};
  SetSgeList(qp, 1, &sge);
}

/// Points the request at the data, which no longer moves.
const ibv_send_wr& Finish(Described& described, ibv_sge& inlineSge) {
  ibv_send_wr& request = described.request;
  if (request.send_flags & IBV_SEND_INLINE) {
    const auto bytes = static_cast<uint32_t>(described.inlineData.size());
    inlineSge = {reinterpret_cast<uintptr_t>(described.inlineData.data()), bytes, 0};
    request.sg_list = &inlineSge;
    request.num_sge = 1;
  } else {
    request.sg_list = described.sges.data();
    request.num_sge = static_cast<int>(described.sges.size());
  }
  return request;
}

void Start(ibv_qp_ex* base) {
  Qp& qp = Of(base);
  qp.describing.lock();
  qp.describedCount = 0;
  qp.describeError = 0;
}

void Abort(ibv_qp_ex* base) { Of(base).describing.unlock(); }

/// Posts what was described: all requests or, if one is refused, none of them from it on.
int Complete(ibv_qp_ex* base) {
  Qp& qp = Of(base);
  int refused = qp.describeError;
  {
    Adapter& adapter = AdapterOf(base->qp_base.context);
    const Adapter::Lock lock = adapter.Hold();
    for (size_t i = 0; i < qp.describedCount && refused == 0; i++) {
      ibv_sge inlineSge;
      refused = PostSend(adapter, qp, Finish(qp.described[i], inlineSge));
    }
    adapter.Posted();
  }
  qp.describing.unlock();
  return Answer(refused);
}

}  // namespace

uint64_t SendOperationsOf(ibv_qp_type type) {
  constexpr uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr uint64_t uc = sends | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                          IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
  switch (type) {
    case IBV_QPT_RC:
      return uc | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
             IBV_QP_EX_WITH_ATOMIC_WRITE;
    case IBV_QPT_UC:
      return uc;
    case IBV_QPT_UD:
      return sends;
    default:
      return 0;
  }
}

void SetSendOperations(Qp& qp, uint64_t operations) {
  const auto has = [=](uint64_t operation) { return (operations & operation) != 0; };
  qp.isExtended = operations != 0;
  if (!qp.isExtended) return;
  qp.wr_start = Start;
  qp.wr_complete = Complete;
  qp.wr_abort = Abort;
  qp.wr_set_inline_data = SetInline;
  qp.wr_set_inline_data_list = SetInlineList;
  qp.wr_set_sge = SetSge;
  qp.wr_set_sge_list = SetSgeList;
  qp.wr_set_ud_addr = SetUdAddress;
  if (has(IBV_QP_EX_WITH_SEND)) qp.wr_send = Send;
  if (has(IBV_QP_EX_WITH_SEND_WITH_IMM)) qp.wr_send_imm = SendImm;
  if (has(IBV_QP_EX_WITH_SEND_WITH_INV)) qp.wr_send_inv = SendInv;
  if (has(IBV_QP_EX_WITH_RDMA_WRITE)) qp.wr_rdma_write = Write;
  if (has(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)) qp.wr_rdma_write_imm = WriteImm;
  if (has(IBV_QP_EX_WITH_RDMA_READ)) qp.wr_rdma_read = Read;
  if (has(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)) qp.wr_atomic_cmp_swp = CompareSwap;
  if (has(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)) qp.wr_atomic_fetch_add = FetchAdd;
  if (has(IBV_QP_EX_WITH_ATOMIC_WRITE)) qp.wr_atomic_write = AtomicWrite;
  if (has(IBV_QP_EX_WITH_BIND_MW)) qp.wr_bind_mw = BindMw;
  if (has(IBV_QP_EX_WITH_LOCAL_INV)) qp.wr_local_inv = LocalInv;
}
