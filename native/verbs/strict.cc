#include "strict.h"

#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <string>

#include "card_codes.h"
#include "core/faultguard.h"
#include "explain.h"
#include "settings.h"
#include "texts.h"

namespace {

/// Ends the program. No handler of its own runs: it may call verbs, and the thread has the adapter's lock.
[[noreturn]] void End(const std::string& what) {
  const std::string text = "wasm-roce: strict: " + what + "\n";
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(128 + SIGABRT);
  signal(SIGABRT, SIG_DFL);
  abort();
}

/// Whether the card reads the pieces of a request from the program's memory after the call that posts it.
bool ReadsMemory(const ibv_send_wr& request) {
  if (request.send_flags & IBV_SEND_INLINE) return false;
  switch (request.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_ATOMIC_WRITE:
      return true;
    default:
      return false;
  }
}

/// Returns a hash of the bytes of pieces (FNV-1a by words). Memory that is not there has no part in it.
uint64_t HashOf(const std::vector<ibv_sge>& pieces) {
  constexpr uint64_t kPrime = 0x100000001b3;
  uint64_t hash = 0xcbf29ce484222325;
  uint64_t* const to = &hash;
  for (const ibv_sge& piece : pieces) {
    const auto* at = reinterpret_cast<const uint8_t*>(piece.addr);
    const size_t length = piece.length;
    TryAccess([=] {
      size_t i = 0;
      for (; i + sizeof(uint64_t) <= length; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at + i, sizeof word);
        *to = (*to ^ word) * kPrime;
      }
      for (; i < length; i++) *to = (*to ^ at[i]) * kPrime;
    });
  }
  return hash;
}

uint64_t BytesOf(const ibv_send_wr& request) {
  uint64_t bytes = 0;
  for (int i = 0; i < request.num_sge; i++) bytes += request.sg_list[i].length;
  return bytes;
}

/// Returns why an adapter refuses a request, if that is plain; else an empty text.
std::string WhyRefused(const Qp& qp, const ibv_send_wr& request) {
  const ibv_qp_cap& cap = qp.cap;
  const uint64_t bytes = BytesOf(request);
  const auto pieces = static_cast<uint32_t>(request.num_sge);
  if ((request.send_flags & IBV_SEND_INLINE) != 0 && bytes > cap.max_inline_data)
    return std::to_string(bytes) + " bytes of inline data are more than its max_inline_data " +
           std::to_string(cap.max_inline_data);
  // inline data are copied, from any number of pieces
  if ((request.send_flags & IBV_SEND_INLINE) == 0 && pieces > cap.max_send_sge)
    return std::to_string(pieces) + " pieces are more than its max_send_sge " + std::to_string(cap.max_send_sge);
  return {};
}

}  // namespace

bool IsStrict() {
  static const bool isStrict = Setting("WASM_ROCE_STRICT") != nullptr;
  return isStrict;
}

void CheckSend(Qp& qp, const ibv_send_wr& request, int refused) {
  if (!IsStrict()) return;
  std::string wrong = WhyRefused(qp, request);
  // a full queue is no misuse: the program comes back later
  if (wrong.empty() && refused == EINVAL) wrong = "ibv_post_send refuses it (EINVAL)";
  if (!wrong.empty()) End(RequestText(qp, request) + ": " + wrong);
  if (refused != 0) return;
  Promised promised{false, RequestText(qp, request), {}, 0};
  promised.isSignaled = qp.signalsAll != 0 || (request.send_flags & IBV_SEND_SIGNALED) != 0;
  if (ReadsMemory(request)) promised.data.assign(request.sg_list, request.sg_list + request.num_sge);
  promised.hash = HashOf(promised.data);
  qp.promised.push_back(std::move(promised));
}

void CheckReceive(const ibv_recv_wr& request, uint32_t maxSge, int refused) {
  if (!IsStrict()) return;
  const std::string name = "RECV (wr_id " + std::to_string(request.wr_id) + ")";
  if (request.num_sge > 0 && static_cast<uint32_t>(request.num_sge) > maxSge)
    End(name + ": " + std::to_string(request.num_sge) + " pieces are more than the queue's " + std::to_string(maxSge));
  if (refused == EINVAL) End(name + ": the call that posts it refuses it (EINVAL)");
}

void CheckCompletion(Adapter& adapter, uint32_t cqe, const ibv_wc& wc) {
  if (!IsStrict()) return;
  if (wc.status == IBV_WC_LOC_PROT_ERR || wc.status == IBV_WC_LOC_LEN_ERR || wc.status == IBV_WC_LOC_QP_OP_ERR)
    End(FailureText(adapter, cqe));
  Qp* const qp = adapter.TheEvents().QpOf(adapter.Read<uint32_t>(cqe + CqeOffset::QP));
  if (qp == nullptr || adapter.Read<uint32_t>(cqe + CqeOffset::OPCODE) >= WcOpcode::RECV) return;
  // after a failure each request completes by itself, and none is sent
  if (wc.status != IBV_WC_SUCCESS) return qp->promised.clear();
  for (bool isLast = false; !isLast && !qp->promised.empty(); qp->promised.pop_front()) {
    const Promised& promised = qp->promised.front();
    isLast = promised.isSignaled;
    if (HashOf(promised.data) != promised.hash)
      End("the data of " + promised.name + " have changed before its completion: an adapter may send the old bytes, "
          "the new ones, or some of both");
  }
}

void CheckEvent(const ibv_async_event& event) {
  if (!IsStrict() || event.event_type != IBV_EVENT_CQ_ERR) return;
  End(EventText(event));
}
