#include "completion.h"

#include "card_codes.h"
#include "explain.h"
#include "report.h"
#include "strict.h"

namespace {

constexpr unsigned kFlags = IBV_WC_GRH | IBV_WC_WITH_IMM | IBV_WC_WITH_INV;
/// The packet type that mlx5 puts into `sl` of a datagram: bit 3 = UDP, and 2 for IPv4 or 1 for IPv6. UCX drops
/// datagrams without it.
constexpr uint8_t kRoceUdp = 8, kRoceIpv4 = 2, kRoceIpv6 = 1;

}  // namespace

void ReadCompletion(Adapter& adapter, uint32_t cqe, ibv_wc& wc) {
  const auto word = [&](uint32_t offset) { return adapter.Read<uint32_t>(cqe + offset); };
  const uint32_t flags = word(CqeOffset::FLAGS);
  wc = {};
  wc.wr_id = adapter.Read<uint64_t>(cqe + CqeOffset::WR_ID);
  wc.status = static_cast<ibv_wc_status>(word(CqeOffset::STATUS));
  CountCompletion(wc.status);
  if (wc.status != IBV_WC_SUCCESS) ExplainFailure(adapter, cqe);
  wc.opcode = static_cast<ibv_wc_opcode>(word(CqeOffset::OPCODE));
  wc.vendor_err = word(CqeOffset::SYNDROME);
  wc.byte_len = word(CqeOffset::BYTE_LEN);
  wc.imm_data = flags & WcFlag::WITH_INV ? word(CqeOffset::INVALIDATED_RKEY) : word(CqeOffset::IMM);
  wc.qp_num = word(CqeOffset::QPN);
  wc.src_qp = word(CqeOffset::SRC_QPN);
  wc.wc_flags = flags & kFlags;
  if (flags & WcFlag::GRH) wc.sl = kRoceUdp | (flags & WcFlag::IPV6 ? kRoceIpv6 : kRoceIpv4);
  CheckCompletion(adapter, cqe, wc);
}
