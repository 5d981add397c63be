// Functions of libibverbs that need no device. Preloaded, a program has those of the stock library; the file
// libibverbs.so.1 has these.
#include <fcntl.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <infiniband/sa.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <linux/limits.h>

#include "abi.h"
#include "texts.h"

namespace {

constexpr int kNone = -1;

/// A rate as a multiple of 2.5 Gbit/s, as rdma-core has it for some of them, and in Mbit/s.
struct Rate {
  ibv_rate rate;
  int mult, mbps;
};

constexpr std::array<Rate, 23> kRates = {{
    {IBV_RATE_2_5_GBPS, 1, 2500},
    {IBV_RATE_5_GBPS, 2, 5000},
    {IBV_RATE_10_GBPS, 4, 10000},
    {IBV_RATE_14_GBPS, kNone, 14062},
    {IBV_RATE_20_GBPS, 8, 20000},
    {IBV_RATE_25_GBPS, kNone, 25781},
    {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_30_GBPS, 12, 30000},
    {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_50_GBPS, 20, 53125},
    {IBV_RATE_56_GBPS, kNone, 56250},
    {IBV_RATE_60_GBPS, 24, 60000},
    {IBV_RATE_80_GBPS, 32, 80000},
    {IBV_RATE_100_GBPS, kNone, 103125},
    {IBV_RATE_112_GBPS, kNone, 112500},
    {IBV_RATE_120_GBPS, 48, 120000},
    {IBV_RATE_168_GBPS, kNone, 168750},
    {IBV_RATE_200_GBPS, kNone, 206250},
    {IBV_RATE_300_GBPS, kNone, 309375},
    {IBV_RATE_400_GBPS, 160, 425000},
    {IBV_RATE_600_GBPS, 240, 637500},
    {IBV_RATE_800_GBPS, 320, 850000},
    {IBV_RATE_1200_GBPS, 480, 1275000},
}};

/// Returns the text of a code of verbs, by index.
template <size_t count>
const char* TextAt(const std::array<const char*, count>& texts, size_t index) {
  return index < count && texts[index] != nullptr ? texts[index] : "unknown";
}

void FromKernel(ibv_ah_attr& to, const ib_uverbs_ah_attr& from) {
  to = {};
  memcpy(to.grh.dgid.raw, from.grh.dgid, sizeof to.grh.dgid.raw);
  to.grh.flow_label = from.grh.flow_label;
  to.grh.sgid_index = from.grh.sgid_index;
  to.grh.hop_limit = from.grh.hop_limit;
  to.grh.traffic_class = from.grh.traffic_class;
  to.dlid = from.dlid;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.is_global = from.is_global;
  to.port_num = from.port_num;
}

}  // namespace

VERBS_API const char* ibv_node_type_str(ibv_node_type type) {
  static constexpr std::array<const char*, 8> texts = {
      nullptr,         "channel adapter", "switch",         "router",
      "iWARP adapter", "usNIC adapter",   "usNIC over UDP", "unspecified adapter",
  };
  return TextAt(texts, type);
}

VERBS_API const char* ibv_port_state_str(ibv_port_state state) {
  static constexpr std::array<const char*, 6> texts = {
      "port state does not change (NOP)",
      "port is down (DOWN)",
      "port initializes (INIT)",
      "port is armed (ARMED)",
      "port is active (ACTIVE)",
      "port is active, its link waits (ACTIVE_DEFER)",
  };
  return TextAt(texts, state);
}

VERBS_API const char* ibv_event_type_str(ibv_event_type event) {
  static constexpr std::array<const char*, IBV_EVENT_WQ_FATAL + 1> texts = {
      "error of a completion queue (CQ_ERR)",
      "fatal error of a queue pair (QP_FATAL)",
      "invalid request to a queue pair (QP_REQ_ERR)",
      "access error of a queue pair (QP_ACCESS_ERR)",
      "first packet of a connection (COMM_EST)",
      "send queue has drained (SQ_DRAINED)",
      "path has migrated (PATH_MIG)",
      "path cannot migrate (PATH_MIG_ERR)",
      "fatal error of the device (DEVICE_FATAL)",
      "port is active (PORT_ACTIVE)",
      "error of the port (PORT_ERR)",
      "LID has changed (LID_CHANGE)",
      "P_Key table has changed (PKEY_CHANGE)",
      "subnet manager has changed (SM_CHANGE)",
      "error of a shared receive queue (SRQ_ERR)",
      "shared receive queue is below its limit (SRQ_LIMIT_REACHED)",
      "last receive of a queue pair (QP_LAST_WQE_REACHED)",
      "subnet manager asks for a new registration (CLIENT_REREGISTER)",
      "GID table has changed (GID_CHANGE)",
      "fatal error of a work queue (WQ_FATAL)",
  };
  return TextAt(texts, event);
}

/// Those of the card: it has no others.
VERBS_API const char* ibv_wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_SUCCESS ? "success" : TextOf(kStatusMeanings, status);
}

VERBS_API int ibv_rate_to_mbps(ibv_rate rate) {
  for (const Rate& each : kRates)
    if (each.rate == rate) return each.mbps;
  return -1;
}

VERBS_API ibv_rate mbps_to_ibv_rate(int mbps) {
  for (const Rate& each : kRates)
    if (each.mbps == mbps) return each.rate;
  return IBV_RATE_MAX;
}

VERBS_API int ibv_rate_to_mult(ibv_rate rate) {
  for (const Rate& each : kRates)
    if (each.rate == rate) return each.mult;
  return -1;
}

VERBS_API ibv_rate mult_to_ibv_rate(int mult) {
  for (const Rate& each : kRates)
    if (each.mult == mult && mult != kNone) return each.rate;
  return IBV_RATE_MAX;
}

VERBS_API const char* ibv_get_sysfs_path() { return "/sys"; }

VERBS_API int ibv_read_sysfs_file(const char* folder, const char* file, char* to, size_t bytes) {
  char path[PATH_MAX];
  const int length = snprintf(path, sizeof path, "%s/%s", folder, file);
  if (length < 0 || static_cast<size_t>(length) >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t got = read(fd, to, bytes);
  close(fd);
  if (got <= 0) return -1;
  const auto count = static_cast<size_t>(got);
  // a text ends with a zero in place of its newline, or after it if there is room
  if (to[count - 1] == '\n')
    to[count - 1] = 0;
  else if (count < bytes)
    to[count] = 0;
  else
    return -1;
  return static_cast<int>(strlen(to));
}

VERBS_API void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from) { FromKernel(*to, *from); }

VERBS_API void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from) {
  to->qp_state = static_cast<ibv_qp_state>(from->qp_state);
  to->cur_qp_state = static_cast<ibv_qp_state>(from->cur_qp_state);
  to->path_mtu = static_cast<ibv_mtu>(from->path_mtu);
  to->path_mig_state = static_cast<ibv_mig_state>(from->path_mig_state);
  to->qkey = from->qkey;
  to->rq_psn = from->rq_psn;
  to->sq_psn = from->sq_psn;
  to->dest_qp_num = from->dest_qp_num;
  to->qp_access_flags = from->qp_access_flags;
  to->cap.max_send_wr = from->max_send_wr;
  to->cap.max_recv_wr = from->max_recv_wr;
  to->cap.max_send_sge = from->max_send_sge;
  to->cap.max_recv_sge = from->max_recv_sge;
  to->cap.max_inline_data = from->max_inline_data;
  FromKernel(to->ah_attr, from->ah_attr);
  FromKernel(to->alt_ah_attr, from->alt_ah_attr);
  to->pkey_index = from->pkey_index;
  to->alt_pkey_index = from->alt_pkey_index;
  to->en_sqd_async_notify = from->en_sqd_async_notify;
  to->sq_draining = from->sq_draining;
  to->max_rd_atomic = from->max_rd_atomic;
  to->max_dest_rd_atomic = from->max_dest_rd_atomic;
  to->min_rnr_timer = from->min_rnr_timer;
  to->port_num = from->port_num;
  to->timeout = from->timeout;
  to->retry_cnt = from->retry_cnt;
  to->rnr_retry = from->rnr_retry;
  to->alt_port_num = from->alt_port_num;
  to->alt_timeout = from->alt_timeout;
}

namespace {

/// Copies the fields that both records of a path have; other widths, and another order.
template <typename To, typename From>
void CopyPath(To& to, const From& from) {
  to = {};
  memcpy(&to.dgid, &from.dgid, 16);
  memcpy(&to.sgid, &from.sgid, 16);
  to.dlid = from.dlid;
  to.slid = from.slid;
  to.raw_traffic = from.raw_traffic;
  to.flow_label = from.flow_label;
  to.hop_limit = from.hop_limit;
  to.traffic_class = from.traffic_class;
  to.reversible = from.reversible;
  to.numb_path = from.numb_path;
  to.pkey = from.pkey;
  to.sl = from.sl;
  to.mtu_selector = from.mtu_selector;
  to.mtu = static_cast<decltype(to.mtu)>(from.mtu);
  to.rate_selector = from.rate_selector;
  to.rate = from.rate;
  to.packet_life_time_selector = from.packet_life_time_selector;
  to.packet_life_time = from.packet_life_time;
  to.preference = from.preference;
}

}  // namespace

VERBS_API void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from) { CopyPath(*to, *from); }
VERBS_API void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from) { CopyPath(*to, *from); }
