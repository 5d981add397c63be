// The multicast groups of a packet socket. A UDP socket joins each, so that the kernel tells switches and routers. The
// packet socket joins the MAC address, so that the interface receives it even if the kernel has no address to join
// with.
#pragma once
#include <linux/if_ether.h>
#include <cstdint>
#include <vector>

/// A multicast group: its IP address, and its MAC address.
struct PacketGroup {
  bool isIpv6 = false;
  uint8_t address[16] = {};
  uint8_t mac[ETH_ALEN] = {};
};

class PacketGroups {
 public:
  /// @param fd packet socket @returns 0 or -errno
  int Join(int fd, const PacketGroup& group, int ifindex);
  void Leave(int fd, const PacketGroup& group, int ifindex);
  bool IsEmpty() const { return joined_.empty(); }
  /// Whether a group with this MAC address is joined.
  bool Has(const uint8_t* mac) const;
  /// Leaves all groups.
  void Close();

 private:
  struct Joined {
    PacketGroup group;
    /// UDP socket that keeps the membership.
    int fd;
  };
  std::vector<Joined> joined_;
};
