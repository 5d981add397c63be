#include "packetgroups.h"

#include <linux/if_packet.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fd.h"
#include "group.h"

namespace {

int SetMac(int fd, const uint8_t* mac, int ifindex, int option) {
  packet_mreq request{};
  request.mr_ifindex = ifindex;
  request.mr_type = PACKET_MR_MULTICAST;
  request.mr_alen = ETH_ALEN;
  memcpy(request.mr_address, mac, ETH_ALEN);
  return setsockopt(fd, SOL_PACKET, option, &request, sizeof request) == 0 ? 0 : -errno;
}

}  // namespace

int PacketGroups::Join(int fd, const PacketGroup& group, int ifindex) {
  int udp = KernelSocket(group.isIpv6 ? AF_INET6 : AF_INET, SOCK_DGRAM);
  if (udp < 0) return -errno;
  int result = SetMembership(udp, group.address, group.isIpv6, ifindex, true);
  if (result == 0) result = SetMac(fd, group.mac, ifindex, PACKET_ADD_MEMBERSHIP);
  if (result == 0) {
    joined_.push_back({group, udp});
  } else {
    CloseFd(udp);
  }
  return result;
}

void PacketGroups::Leave(int fd, const PacketGroup& group, int ifindex) {
  auto found = std::find_if(joined_.begin(), joined_.end(), [&](const Joined& joined) {
    return joined.group.isIpv6 == group.isIpv6 &&
           memcmp(joined.group.address, group.address, sizeof group.address) == 0;
  });
  if (found == joined_.end()) return;
  CloseFd(found->fd);
  joined_.erase(found);
  SetMac(fd, group.mac, ifindex, PACKET_DROP_MEMBERSHIP);
}

bool PacketGroups::Has(const uint8_t* mac) const {
  return std::any_of(joined_.begin(), joined_.end(),
                     [&](const Joined& joined) { return memcmp(mac, joined.group.mac, ETH_ALEN) == 0; });
}

void PacketGroups::Close() {
  for (Joined& joined : joined_) CloseFd(joined.fd);
  joined_.clear();
}
