// Membership of multicast groups, through any UDP socket.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <cerrno>
#include <cstdint>
#include <cstring>

/// Joins or leaves on one interface; the kernel tells routers and switches (IGMP, MLD) and lets the group's MAC in.
/// @param address 4 or 16 bytes @returns 0 or -errno
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

/// What the socket sends to groups leaves by this interface. @returns 0 or -errno
inline int SetGroupInterface(int fd, bool isIpv6, int ifindex) {
  if (isIpv6) return setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &ifindex, sizeof ifindex) == 0 ? 0 : -errno;
  ip_mreqn request{};
  request.imr_ifindex = ifindex;
  return setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof request) == 0 ? 0 : -errno;
}
