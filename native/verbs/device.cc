// The device: the list that programs choose it from, contexts, and what it says of itself.
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "card_codes.h"
#include "context.h"
#include "device.h"
#include "limits.h"
#include "mtu.h"
#include "objects.h"

namespace {

/// No OUI, as rxe reports it for software devices.
constexpr uint32_t kVendorId = 0xffffff;
constexpr int kMaxPd = 1 << 16, kMaxCq = 1 << 16, kMaxAh = 1 << 16, kMaxSrq = 1 << 14, kMaxMw = 1 << 16;

/// The device. mlx5dv and efadv look at what lies behind a device of theirs, so room of zeros follows.
struct Device {
  ibv_device device;
  uint8_t behind[4096 - sizeof(ibv_device)];
};

ibv_device* TheDevice() {
  static Device room{};
  static ibv_device* const device = [] {
    room.device.node_type = IBV_NODE_CA;
    room.device.transport_type = IBV_TRANSPORT_IB;
    strcpy(room.device.name, kDevice);
    strcpy(room.device.dev_name, kVerbsFile);
    snprintf(room.device.dev_path, sizeof room.device.dev_path, "/sys/class/infiniband_verbs/%s", kVerbsFile);
    snprintf(room.device.ibdev_path, sizeof room.device.ibdev_path, "/sys/class/infiniband/%s", kDevice);
    return &room.device;
  }();
  return device;
}

__be64 GuidOf(const Port& port) {
  __be64 guid;
  uint8_t bytes[8];
  port.Guid(bytes);
  memcpy(&guid, bytes, sizeof guid);
  return guid;
}

/// IB_UVERBS_DEVICE_ATOMIC_WRITE of rdma/ib_user_verbs.h, since Linux 6.2.
constexpr uint64_t kAtomicWrite = uint64_t{1} << 40;

ibv_device_attr DeviceAttributes(const Adapter& adapter) {
  ibv_device_attr attr{};
  strcpy(attr.fw_ver, WASM_ROCE_VERSION);
  attr.node_guid = attr.sys_image_guid = GuidOf(adapter.ThePort());
  attr.max_mr_size = UINT32_MAX;
  attr.page_size_cap = 4096;
  attr.vendor_id = kVendorId;
  attr.max_qp = kMaxQp;
  attr.max_qp_wr = MAX_WR;
  attr.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW |
                          IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR |
                          IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_PORT_ACTIVE_EVENT |
                          IBV_DEVICE_SYS_IMAGE_GUID;
  attr.max_sge = attr.max_sge_rd = MAX_SGE;
  attr.max_cq = kMaxCq;
  attr.max_cqe = MAX_CQE;
  attr.max_mr = kMaxMr;
  attr.max_pd = kMaxPd;
  attr.max_qp_rd_atom = attr.max_qp_init_rd_atom = MAX_RD_ATOMIC;
  attr.max_res_rd_atom = MAX_RD_ATOMIC * kMaxQp;
  attr.atomic_cap = IBV_ATOMIC_HCA;
  attr.max_mw = kMaxMw;
  attr.max_mcast_grp = attr.max_mcast_qp_attach = 8192;
  attr.max_total_mcast_qp_attach = 8192;
  attr.max_ah = kMaxAh;
  attr.max_srq = kMaxSrq;
  attr.max_srq_wr = MAX_WR;
  attr.max_srq_sge = MAX_SGE;
  attr.max_pkeys = 1;
  attr.phys_port_cnt = kPortNumber;
  return attr;
}

int QueryDeviceEx(ibv_context* context, const ibv_query_device_ex_input*, ibv_device_attr_ex* attr, size_t bytes) {
  if (bytes < sizeof attr->orig_attr) return Answer(EINVAL);
  ibv_device_attr_ex all{};
  all.orig_attr = DeviceAttributes(AdapterOf(context));
  all.device_cap_flags_ex = all.orig_attr.device_cap_flags | kAtomicWrite;
  all.phys_port_cnt_ex = kPortNumber;
  memset(attr, 0, bytes);
  memcpy(attr, &all, std::min(bytes, sizeof all));
  return 0;
}

int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t bytes) {
  if (port != kPortNumber) return Answer(EINVAL);
  const Adapter::Lock lock = AdapterOf(context).Hold();
  const Port& own = AdapterOf(context).ThePort();
  const bool isActive = own.IsActive();
  ibv_port_attr all{};
  all.state = isActive ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  all.max_mtu = IBV_MTU_4096;
  all.active_mtu = MtuCode(own.ActiveMtu());
  all.gid_tbl_len = static_cast<int>(own.Gids().size());
  all.port_cap_flags = kPortCapabilities;
  all.max_msg_sz = 1u << 31;
  all.pkey_tbl_len = 1;
  all.max_vl_num = 1;
  all.active_width = kWidth1x;
  all.active_speed = kSpeedEdr;
  all.phys_state = isActive ? kLinkUp : kDisabled;
  all.link_layer = IBV_LINK_LAYER_ETHERNET;
  memset(attr, 0, bytes);
  memcpy(attr, &all, std::min(bytes, sizeof all));
  return 0;
}

/// Returns the GID table as it is now: rules of faults change it.
std::vector<Gid> GidsOf(ibv_context* context) {
  const Adapter::Lock lock = AdapterOf(context).Hold();
  return AdapterOf(context).ThePort().Gids();
}

/// @returns false if there is no such entry
bool FindGid(ibv_context* context, uint32_t port, uint32_t index, Gid& gid) {
  const std::vector<Gid> gids = GidsOf(context);
  if (port != kPortNumber || index >= gids.size()) return false;
  gid = gids[index];
  return true;
}

void FillEntry(ibv_context* context, uint32_t index, const Gid& gid, ibv_gid_entry& entry) {
  memcpy(entry.gid.raw, gid.raw, sizeof entry.gid.raw);
  entry.gid_index = index;
  entry.port_num = kPortNumber;
  entry.gid_type = IBV_GID_TYPE_ROCE_V2;
  entry.ndev_ifindex = static_cast<uint32_t>(AdapterOf(context).ThePort().Interface());
}

}  // namespace

VERBS_API ibv_device** ibv_get_device_list(int* count) {
  auto** list = static_cast<ibv_device**>(calloc(2, sizeof(ibv_device*)));
  if (list == nullptr) return nullptr;
  if (Adapter::Get() != nullptr) list[0] = TheDevice();
  if (count != nullptr) *count = list[0] != nullptr;
  return list;
}

VERBS_API void ibv_free_device_list(ibv_device** list) { free(list); }

VERBS_API const char* ibv_get_device_name(ibv_device* device) { return device->name; }

VERBS_API int ibv_get_device_index(ibv_device*) { return 0; }

VERBS_API __be64 ibv_get_device_guid(ibv_device*) {
  const Adapter* adapter = Adapter::Get();
  return adapter == nullptr ? 0 : GuidOf(adapter->ThePort());
}

VERBS_API ibv_context* ibv_open_device(ibv_device* device) {
  Adapter* adapter = Adapter::Get();
  if (adapter == nullptr) return nullptr;
  auto* context = Make<Context>();
  if (context == nullptr) return nullptr;
  if (const int refused = OpenAsyncQueue(context)) return Discard(context, refused);
  context->adapter = adapter;
  context->sz = sizeof(verbs_context);
  context->query_port = QueryPort;
  context->query_device_ex = QueryDeviceEx;
  ibv_context& base = context->context;
  base.device = device;
  base.cmd_fd = -1;
  base.num_comp_vectors = 1;
  base.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&base.mutex, nullptr);
  SetMemoryOperations(*context);
  SetCqOperations(*context);
  SetQpOperations(*context);
  SetSrqOperations(*context);
  const Adapter::Lock lock = adapter->Hold();
  adapter->TheEvents().Add(context);
  return &base;
}

VERBS_API int ibv_close_device(ibv_context* base) {
  Context* context = ContextOf(base);
  {
    const Adapter::Lock lock = context->adapter->Hold();
    context->adapter->TheEvents().Remove(context);
    context->adapter->Flush();
  }
  close(base->async_fd);
  pthread_mutex_destroy(&base->mutex);
  delete context;
  return 0;
}

VERBS_API int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  *attr = DeviceAttributes(AdapterOf(context));
  return 0;
}

VERBS_API int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  // programs of before rdma-core 26 have attributes up to `flags`
  return QueryPort(context, port, reinterpret_cast<ibv_port_attr*>(attr), offsetof(ibv_port_attr, port_cap_flags2));
}

VERBS_API int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  Gid found;
  if (index < 0 || !FindGid(context, port, static_cast<uint32_t>(index), found)) {
    errno = EINVAL;
    return -1;
  }
  memcpy(gid->raw, found.raw, sizeof gid->raw);
  return 0;
}

VERBS_API int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                                uint32_t flags, size_t bytes) {
  if (flags != 0 || bytes < sizeof *entry || port != kPortNumber) return Answer(EINVAL);
  Gid found;
  if (!FindGid(context, port, index, found)) return Answer(ENODATA);
  memset(entry, 0, bytes);
  FillEntry(context, index, found, *entry);
  return 0;
}

VERBS_API ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max, uint32_t flags,
                                       size_t bytes) {
  if (flags != 0 || bytes < sizeof *entries) return -EINVAL;
  const std::vector<Gid> gids = GidsOf(context);
  if (gids.size() > max) return -EINVAL;
  for (uint32_t i = 0; i < gids.size(); i++) {
    auto* entry = reinterpret_cast<ibv_gid_entry*>(reinterpret_cast<uint8_t*>(entries) + i * bytes);
    memset(entry, 0, bytes);
    FillEntry(context, i, gids[i], *entry);
  }
  return static_cast<ssize_t>(gids.size());
}

/// One of libibverbs' private functions, which rdma-core's Python tests call. Its numbers are sysfs': 1 = RoCE v2.
VERBS_API int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, unsigned* type) {
  Gid found;
  if (!FindGid(context, port, index, found)) {
    errno = EINVAL;
    return -1;
  }
  *type = 1;
  return 0;
}

VERBS_API int ibv_query_pkey(ibv_context*, uint8_t port, int index, __be16* pkey) {
  if (port != kPortNumber || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = 0xffff;
  return 0;
}

VERBS_API int ibv_get_pkey_index(ibv_context*, uint8_t port, __be16 pkey) {
  if (port == kPortNumber && pkey == 0xffff) return 0;
  errno = EINVAL;
  return -1;
}
