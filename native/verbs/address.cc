// Addresses, address handles, and multicast groups.
#include "address.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <cstring>

#include "card_codes.h"
#include "cardcall.h"
#include "librarypath.h"
#include "limits.h"
#include "objects.h"

namespace {

/// As DEFAULT_HOP_LIMIT of src/verbs/address/resolvedaddress.ts, for a program that sets none.
constexpr uint32_t kHopLimit = 64;
constexpr uint32_t kUntagged = 0xffffffff;
constexpr uint32_t kMaxFlowLabel = 0xfffff;
/// A received IPv4 header is in the second half of the 40 bytes in front of a datagram.
constexpr size_t kIpv4At = 20;

bool IsIpv4(const ibv_gid& gid) { return IsIpv4Mapped(gid.raw); }

/// IP addresses have 16 bytes in an address vector, and IPv4 has the first four.
void WriteIp(Adapter& adapter, uint32_t at, const uint8_t raw[16], bool isIpv4) {
  memset(adapter.At(at), 0, 16);
  memcpy(adapter.At(at), isIpv4 ? raw + 12 : raw, isIpv4 ? 4 : 16);
}

bool IsIpv4ChecksumValid(const uint8_t header[20]) {
  uint32_t sum = 0;
  for (int i = 0; i < 20; i += 2) sum += static_cast<uint32_t>(header[i] << 8 | header[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

/// The IP header in front of a datagram.
struct Received {
  ibv_gid source, destination;
  uint8_t trafficClass;
  uint32_t flowLabel;
};

/// Linux' rule: if both headers are possible, it is IPv4 when the IPv4 checksum is valid.
bool ReadHeader(const uint8_t* bytes, Received& header) {
  const uint8_t* ipv4 = bytes + kIpv4At;
  const bool mayBeIpv6 = bytes[0] >> 4 == 6;
  const bool isIpv4 = mayBeIpv6 ? ipv4[0] == 0x45 && IsIpv4ChecksumValid(ipv4) : ipv4[0] >> 4 == 4;
  header = {};
  if (isIpv4) {
    for (ibv_gid* gid : {&header.source, &header.destination}) gid->raw[10] = gid->raw[11] = 0xff;
    memcpy(header.source.raw + 12, ipv4 + 12, 4);
    memcpy(header.destination.raw + 12, ipv4 + 16, 4);
    header.trafficClass = ipv4[1];
    return true;
  }
  if (!mayBeIpv6) return false;
  memcpy(header.source.raw, bytes + 8, 16);
  memcpy(header.destination.raw, bytes + 24, 16);
  header.trafficClass = static_cast<uint8_t>(bytes[0] << 4 | bytes[1] >> 4);
  header.flowLabel = static_cast<uint32_t>((bytes[1] & 15) << 16 | bytes[2] << 8 | bytes[3]);
  return true;
}

int MakeHandle(Adapter& adapter, const Ah& ah, uint32_t remoteQpn, uint32_t& handle) {
  // the GID may have gone since the program has made the handle
  if (const int wrong = CheckAddress(adapter, ah.attr)) return wrong;
  WriteAddress(adapter, ah.attr, remoteQpn);
  return MakeInCard(adapter, handle, [&](w2c_card* card) { return w2c_card_ahCreate(card, ah.pd->handle); });
}

/// @returns 0, also if there is none or the card has failed; or an errno
int DestroyHandle(Adapter& adapter, uint32_t handle) {
  if (handle == 0) return 0;
  const auto destroy = [&](w2c_card* card) { return w2c_card_ahDestroy(card, handle); };
  int refused = CallCard(adapter, destroy);
  if (refused == EBUSY) {
    // a datagram that was posted may not have been sent yet
    adapter.Flush();
    refused = CallCard(adapter, destroy);
  }
  return adapter.HasFailed() ? 0 : refused;
}

/// Returns whether librdmacm wants a handle of the device itself. It makes one for each datagram socket (udpong), in
/// the terms of InfiniBand alone: the LID of the port, which is 0, and no GRH. Adapters of Ethernet refuse it, and so
/// all these sockets fail.
bool IsOwnOfLibrdmacm(const void* caller, const ibv_ah_attr& attr) {
  Dl_info library;
  if (attr.is_global != 0 || attr.dlid != 0 || dladdr(caller, &library) == 0) return false;
  return IsLibrary(library.dli_fname, "librdmacm.so");
}

ibv_ah_attr WithOwnGid(const Adapter& adapter, ibv_ah_attr attr) {
  attr.is_global = 1;
  attr.grh = {};
  memcpy(attr.grh.dgid.raw, adapter.ThePort().Gids()[0].raw, sizeof attr.grh.dgid.raw);
  return attr;
}

bool IsMulticast(const ibv_gid& gid) { return IsIpv4(gid) ? gid.raw[12] >> 4 == 14 : gid.raw[0] == 0xff; }

}  // namespace

int CheckAddress(const Adapter& adapter, const ibv_ah_attr& attr) {
  const auto& gids = adapter.ThePort().Gids();
  const bool isKnown = attr.is_global != 0 && attr.grh.sgid_index < gids.size() && attr.port_num <= 1;
  if (!isKnown) return EINVAL;
  return gids[attr.grh.sgid_index].IsIpv4() == IsIpv4(attr.grh.dgid) ? 0 : EINVAL;
}

void WriteAddress(Adapter& adapter, const ibv_ah_attr& attr, uint32_t remoteQpn) {
  const uint32_t at = adapter.Scratch();
  const bool isIpv4 = IsIpv4(attr.grh.dgid);
  // the kernel writes the Ethernet header
  memset(adapter.At(at + AvOffset::DEST_MAC), 0, 6);
  memset(adapter.At(at + AvOffset::SOURCE_MAC), 0, 6);
  adapter.Write<uint32_t>(at + AvOffset::VLAN_TCI, kUntagged);
  adapter.Write<uint32_t>(at + AvOffset::IP_VERSION, isIpv4 ? 4 : 6);
  WriteIp(adapter, at + AvOffset::SOURCE_IP, adapter.ThePort().Gids()[attr.grh.sgid_index].raw, isIpv4);
  WriteIp(adapter, at + AvOffset::DEST_IP, attr.grh.dgid.raw, isIpv4);
  adapter.Write<uint32_t>(at + AvOffset::TRAFFIC_CLASS, attr.grh.traffic_class);
  // the kernel leaves out the bits that the header has no room for, and UCX sets all of them
  adapter.Write<uint32_t>(at + AvOffset::FLOW_LABEL, attr.grh.flow_label & kMaxFlowLabel);
  adapter.Write<uint32_t>(at + AvOffset::HOP_LIMIT, attr.grh.hop_limit == 0 ? kHopLimit : attr.grh.hop_limit);
  adapter.Write<uint32_t>(at + AvOffset::SOURCE_PORT, adapter.SourcePortTo(attr.grh.sgid_index, remoteQpn));
}

VERBS_API ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  Adapter& adapter = AdapterOf(pd->context);
  const bool isOwn = IsOwnOfLibrdmacm(__builtin_return_address(0), *attr);
  const ibv_ah_attr to = isOwn ? WithOwnGid(adapter, *attr) : *attr;
  if (const int wrong = CheckAddress(adapter, to)) return RefuseWith(wrong);
  auto* ah = Make<Ah>();
  if (ah == nullptr) return nullptr;
  const Adapter::Lock lock = adapter.Hold();
  ah->context = pd->context;
  ah->pd = pd;
  ah->attr = to;
  const int refused = MakeHandle(adapter, *ah, 0, ah->handle);
  return refused == 0 ? ah : Discard(ah, refused);
}

uint32_t HandleTo(Adapter& adapter, Ah& ah, uint32_t remoteQpn) {
  const uint16_t port = adapter.SourcePortTo(ah.attr.grh.sgid_index, remoteQpn);
  if (port == kRocePort) return ah.handle;
  uint32_t& handle = ah.byPort[port];
  // without memory for another one the datagram leaves by the first one's port
  if (handle == 0 && MakeHandle(adapter, ah, remoteQpn, handle) != 0) return ah.handle;
  return handle;
}

VERBS_API int ibv_destroy_ah(ibv_ah* base) {
  Ah* ah = AhOf(base);
  Adapter& adapter = AdapterOf(base->context);
  const Adapter::Lock lock = adapter.Hold();
  for (auto at = ah->byPort.begin(); at != ah->byPort.end(); at = ah->byPort.erase(at))
    if (const int refused = DestroyHandle(adapter, at->second)) return Answer(refused);
  if (const int refused = DestroyHandle(adapter, ah->handle)) return Answer(refused);
  delete ah;
  return 0;
}

VERBS_API int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr) {
  Received header;
  if ((wc->wc_flags & IBV_WC_GRH) == 0 || !ReadHeader(reinterpret_cast<const uint8_t*>(grh), header)) {
    errno = EINVAL;
    return -1;
  }
  *attr = {};
  attr->is_global = 1;
  attr->port_num = port;
  attr->grh.dgid = header.source;
  // without the ECN bits, which are the network's
  attr->grh.traffic_class = header.trafficClass & ~3;
  attr->grh.flow_label = header.flowLabel;
  attr->grh.hop_limit = 0xff;
  const Adapter::Lock lock = AdapterOf(context).Hold();
  const auto& gids = AdapterOf(context).ThePort().Gids();
  const bool isIpv4 = IsIpv4(header.source);
  for (uint32_t i = 0; i < gids.size(); i++) {
    const bool isOurs = IsMulticast(header.destination) ? gids[i].IsIpv4() == isIpv4
                                                        : memcmp(gids[i].raw, header.destination.raw, 16) == 0;
    if (!isOurs) continue;
    attr->grh.sgid_index = static_cast<uint8_t>(i);
    return 0;
  }
  errno = EINVAL;
  return -1;
}

VERBS_API ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  ibv_ah_attr attr;
  return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) == 0 ? ibv_create_ah(pd, &attr) : nullptr;
}

/// The kernel finds the neighbour. @returns -1, as for an adapter that leaves Ethernet to its kernel
VERBS_API int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, uint8_t*, uint16_t*) {
  errno = EOPNOTSUPP;
  return -1;
}

VERBS_API int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  Adapter& adapter = AdapterOf(qp->context);
  const Adapter::Lock lock = adapter.Hold();
  return Answer(adapter.TheGroups().Attach(adapter, qp->handle, *gid));
}

VERBS_API int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  Adapter& adapter = AdapterOf(qp->context);
  const Adapter::Lock lock = adapter.Hold();
  return Answer(adapter.TheGroups().Detach(adapter, qp->handle, *gid));
}
