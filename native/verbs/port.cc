#include "port.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/fd.h"
#include "settings.h"

namespace {

/// Room of the card's GID table.
constexpr size_t kMaxGids = 63;
/// Bytes of a packet beside its payload: the longest headers from IPv6 on, pad and ICRC. As OVERHEAD in
/// src/verbs/address/resolvedaddress.ts, after Linux' rxe.
constexpr uint32_t kOverhead = 80;
constexpr uint32_t kMaxMtu = 4096, kMinMtu = 256;

bool HasIp(const ifaddrs* entry) {
  if (entry->ifa_addr == nullptr) return false;
  return entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6;
}

bool IsUsable(const ifaddrs* entry) {
  return HasIp(entry) && (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
}

/// Returns the first interface with an address that is up, preferably another one than loopback.
const ifaddrs* FirstUsable(const ifaddrs* all) {
  const ifaddrs* loopback = nullptr;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (!IsUsable(entry)) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) == 0) return entry;
    if (loopback == nullptr) loopback = entry;
  }
  return loopback;
}

Gid GidOf(const sockaddr* address) {
  Gid gid{};
  if (address->sa_family == AF_INET) {
    gid.raw[10] = gid.raw[11] = 0xff;
    memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
  } else {
    const auto* address6 = reinterpret_cast<const sockaddr_in6*>(address);
    memcpy(gid.raw, &address6->sin6_addr, 16);
    gid.scope = address6->sin6_scope_id;
  }
  return gid;
}

bool ReadAddress(const std::string& text, Gid& gid) {
  if (inet_pton(AF_INET6, text.c_str(), gid.raw) == 1) return true;
  gid.raw[10] = gid.raw[11] = 0xff;
  return inet_pton(AF_INET, text.c_str(), gid.raw + 12) == 1;
}

int Rank(const Gid& gid) { return gid.IsIpv4() ? 1 : gid.IsLinkLocal() ? 0 : 2; }

}  // namespace

bool IsIpv4Mapped(const uint8_t raw[16]) {
  static constexpr uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return memcmp(raw, prefix, sizeof prefix) == 0;
}

bool Gid::IsLinkLocal() const { return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80; }

std::string Gid::Text() const {
  char text[INET6_ADDRSTRLEN];
  return IsIpv4() ? inet_ntop(AF_INET, raw + 12, text, sizeof text) : inet_ntop(AF_INET6, raw, text, sizeof text);
}

bool Port::Find(std::string& why) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    why = std::string("the interfaces cannot be listed: ") + strerror(errno);
    return false;
  }
  const char* wanted = Setting("WASM_ROCE_INTERFACE");
  const ifaddrs* first = wanted == nullptr ? FirstUsable(all) : nullptr;
  if (first != nullptr) wanted = first->ifa_name;
  if (wanted != nullptr) {
    name_ = wanted;
    AddGids(all);
  }
  freeifaddrs(all);
  index_ = static_cast<int>(if_nametoindex(name_.c_str()));
  if (name_.empty())
    why = "no network interface is up and has an address";
  else if (index_ == 0)
    why = "WASM_ROCE_INTERFACE is '" + name_ + "', and there is no such interface";
  else if (gids_.empty())
    why = name_ + " has no IP address, so it has no GID";
  return why.empty();
}

void Port::AddGids(const ifaddrs* all) {
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (name_ != entry->ifa_name || entry->ifa_addr == nullptr) continue;
    isUp_ = (entry->ifa_flags & IFF_RUNNING) != 0;
    if (HasIp(entry) && gids_.size() < kMaxGids) gids_.push_back(GidOf(entry->ifa_addr));
    if (entry->ifa_addr->sa_family == AF_PACKET)
      memcpy(mac_, reinterpret_cast<const sockaddr_ll*>(entry->ifa_addr)->sll_addr, sizeof mac_);
  }
  std::stable_sort(gids_.begin(), gids_.end(), [](const Gid& a, const Gid& b) { return Rank(a) < Rank(b); });
  own_ = gids_;
  ifreq request{};
  strncpy(request.ifr_name, name_.c_str(), IFNAMSIZ - 1);
  const int fd = KernelSocket(AF_INET, SOCK_DGRAM);
  if (ioctl(fd, SIOCGIFMTU, &request) == 0) mtu_ = static_cast<uint32_t>(request.ifr_mtu);
  close(fd);
}

bool Port::Show(bool isDown, const std::vector<std::string>& addresses) {
  isShownDown_ = isDown;
  std::vector<Gid> gids;
  for (const std::string& each : addresses) {
    Gid gid{};
    if (gids.size() == kMaxGids || !ReadAddress(each, gid)) continue;
    // with the scope that the interface has given it
    for (const Gid& own : own_)
      if (memcmp(own.raw, gid.raw, sizeof gid.raw) == 0) gid = own;
    gids.push_back(gid);
  }
  const auto isSame = [](const Gid& a, const Gid& b) { return memcmp(a.raw, b.raw, sizeof a.raw) == 0; };
  const bool isChanged = !std::equal(gids.begin(), gids.end(), gids_.begin(), gids_.end(), isSame);
  gids_ = gids;
  return isChanged;
}

uint32_t Port::ActiveMtu() const {
  for (uint32_t mtu = kMaxMtu; mtu >= kMinMtu; mtu /= 2)
    if (mtu + kOverhead <= mtu_) return mtu;
  return 0;
}

void Port::Guid(uint8_t guid[8]) const {
  const uint8_t value[8] = {static_cast<uint8_t>(mac_[0] ^ 2), mac_[1], mac_[2], 0xff, 0xfe, mac_[3], mac_[4], mac_[5]};
  memcpy(guid, value, sizeof value);
}
