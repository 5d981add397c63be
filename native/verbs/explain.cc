#include "explain.h"

#include <unistd.h>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "card_codes.h"
#include "objects.h"
#include "settings.h"
#include "texts.h"

namespace {

[[gnu::format(printf, 2, 3)]] void Append(std::string& to, const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  to += text;
}

/// Returns an AETH syndrome as text (IBTA 9.7.5.1), as syndromeText of src/verbs/diagnose/explain.ts.
std::string SyndromeText(uint32_t syndrome) {
  const uint32_t kind = syndrome >> 5, code = syndrome & 0x1f;
  if (syndrome == 0) return "no answer";
  if (kind == 0) return "ACK";
  if (kind == 1) return "RNR NAK";
  return kind == 3 ? TextOf(kNaks, code) : "reserved syndrome";
}

/// Milliseconds of a local ACK timeout (IBTA 9.7.6.1.3).
double AckTimeout(uint32_t code) { return code == 0 ? 0 : std::ldexp(0.004096, static_cast<int>(code)); }

uint32_t AttributeOf(Adapter& adapter, const Qp& qp, uint32_t attribute) {
  adapter.Call([&](w2c_card* card) { w2c_card_qpQuery(card, qp.qp_base.handle); });
  return adapter.Read<uint32_t>(adapter.Scratch() + 4 * attribute);
}

void AppendPeer(std::string& to, const Qp& qp) {
  if (qp.qp_base.qp_type == IBV_QPT_UD || qp.destQpn == 0) return;
  Gid peer{};
  memcpy(peer.raw, qp.ahAttr.grh.dgid.raw, sizeof peer.raw);
  Append(to, " to %s qp 0x%06x", peer.Text().c_str(), qp.destQpn);
}

/// Appends the figures of the card about the failure.
void AppendFacts(std::string& to, Adapter& adapter, const Qp& qp, uint32_t cqe) {
  const auto word = [&](uint32_t offset) { return adapter.Read<uint32_t>(cqe + offset); };
  Append(to, " (psn 0x%06x; last answer: %s", word(CqeOffset::PSN), SyndromeText(word(CqeOffset::SYNDROME)).c_str());
  if (const uint32_t timeouts = word(CqeOffset::TIMEOUTS))
    Append(to, "; %u ACK timeouts of %.3g ms", timeouts, AckTimeout(AttributeOf(adapter, qp, QpAttr::TIMEOUT)));
  if (const uint32_t rnrs = word(CqeOffset::RNRS)) Append(to, "; %u RNR NAKs", rnrs);
  to += ')';
}

/// Returns the reason of an asynchronous event by which a completion queue or a queue pair has failed; else null.
const char* ErrorOf(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return "it was full, and a completion is lost (CQ_ERR)";
    case IBV_EVENT_QP_FATAL:
      return "its completion was lost (QP_FATAL)";
    case IBV_EVENT_QP_REQ_ERR:
      return "the request of the peer is invalid (QP_REQ_ERR)";
    case IBV_EVENT_QP_ACCESS_ERR:
      return "the request of the peer has no access to the memory (QP_ACCESS_ERR)";
    default:
      return nullptr;
  }
}

/// Returns the operation of a request as completions name it, without immediate data and invalidation.
const char* OperationOf(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return "RDMA_WRITE";
    case IBV_WR_RDMA_READ:
      return "RDMA_READ";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return "COMP_SWAP";
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return "FETCH_ADD";
    case IBV_WR_ATOMIC_WRITE:
      return "ATOMIC_WRITE";
    case IBV_WR_BIND_MW:
      return "BIND_MW";
    case IBV_WR_LOCAL_INV:
      return "LOCAL_INV";
    default:
      return "SEND";
  }
}

bool IsWanted() {
  static const bool isWanted = Setting("WASM_ROCE_EXPLAIN") != nullptr;
  return isWanted;
}

void Write(const std::string& sentence) {
  const std::string text = "wasm-roce: " + sentence + "\n";
  // a program that has closed stderr wants no explanations
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

}  // namespace

std::string RequestText(const Qp& qp, const ibv_send_wr& request) {
  std::string text;
  Append(text, "%s (wr_id %llu) on qp 0x%06x", OperationOf(request.opcode),
         static_cast<unsigned long long>(request.wr_id), qp.qp_base.qp_num);
  AppendPeer(text, qp);
  return text;
}

std::string FailureText(Adapter& adapter, uint32_t cqe) {
  const auto word = [&](uint32_t offset) { return adapter.Read<uint32_t>(cqe + offset); };
  const Qp* qp = adapter.TheEvents().QpOf(word(CqeOffset::QP));
  const uint32_t status = word(CqeOffset::STATUS), opcode = word(CqeOffset::OPCODE);
  std::string text;
  Append(text, "%s (wr_id %llu) on qp 0x%06x", TextOf(kOpcodeNames, opcode),
         static_cast<unsigned long long>(adapter.Read<uint64_t>(cqe + CqeOffset::WR_ID)), word(CqeOffset::QPN));
  if (qp != nullptr) AppendPeer(text, *qp);
  Append(text, " failed with %s: %s", TextOf(kStatusNames, status), TextOf(kStatusMeanings, status));
  // a receive has no answers and no retries
  if (qp != nullptr && opcode < WcOpcode::RECV) AppendFacts(text, adapter, *qp, cqe);
  return text;
}

std::string EventText(const ibv_async_event& event) {
  const char* reason = ErrorOf(event.event_type);
  if (reason == nullptr) return {};
  std::string text;
  if (event.event_type == IBV_EVENT_CQ_ERR) {
    Append(text, "a completion queue of size %d", event.element.cq->cqe);
  } else {
    Append(text, "qp 0x%06x", event.element.qp->qp_num);
    AppendPeer(text, *QpOf(event.element.qp));
  }
  return text + " failed: " + reason;
}

void ExplainFailure(Adapter& adapter, uint32_t cqe) {
  if (!IsWanted()) return;
  Qp* qp = adapter.TheEvents().QpOf(adapter.Read<uint32_t>(cqe + CqeOffset::QP));
  const bool isFlushed = adapter.Read<uint32_t>(cqe + CqeOffset::STATUS) == WcStatus::WR_FLUSH_ERR;
  if (qp != nullptr && isFlushed && qp->isExplained) return;
  Write(FailureText(adapter, cqe));
  if (qp != nullptr) qp->isExplained = true;
}

void ExplainEvent(const ibv_async_event& event) {
  const std::string text = IsWanted() ? EventText(event) : std::string();
  if (text.empty()) return;
  Write(text);
  if (event.event_type != IBV_EVENT_CQ_ERR) QpOf(event.element.qp)->isExplained = true;
}
