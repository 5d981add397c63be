// Membership of IPv4 and IPv6 multicast groups through a UDP socket.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <cerrno>
#include <cstdint>
#include <cstring>

/// Joins or leaves a group on one interface. The kernel tells routers and switches (IGMP, MLD) and lets the interface
/// receive the group's MAC address. @param address 4 or 16 bytes @returns 0 or -errno
inline int SetMembership(int fd, const uint8_t* address, bool isIpv6, int ifindex, bool joins) {
  if (isIpv6) {
    ipv6_mreq request{};
    memcpy(&request.ipv6mr_multiaddr, address, sizeof request.ipv6mr_multiaddr);
    request.ipv6mr_interface = ifindex;
    const int option = joins ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP;
    return setsockopt(fd, IPPROTO_IPV6, option, &request, sizeof request) == 0 ? 0 : -errno;
  }
  ip_mreqn request{};
  memcpy(&request.imr_multiaddr, address, sizeof request.imr_multiaddr);
  request.imr_ifindex = ifindex;
  const int option = joins ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP;
  return setsockopt(fd, IPPROTO_IP, option, &request, sizeof request) == 0 ? 0 : -errno;
}

/// Sets the interface by which datagrams to groups leave. Where there is no such option (QEMU's user mode), the routes
/// choose it. @returns 0 or -errno
inline int SetGroupInterface(int fd, bool isIpv6, int ifindex) {
  ip_mreqn request{};
  request.imr_ifindex = ifindex;
  const int result = isIpv6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &ifindex, sizeof ifindex)
                            : setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof request);
  return result == 0 || errno == ENOPROTOOPT ? 0 : -errno;
}
