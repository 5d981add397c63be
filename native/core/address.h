// IPv4 and IPv6 socket addresses.
#pragma once
#include <netinet/in.h>
#include <cstdint>
#include <cstring>

/// Returns a sockaddr_in6, or a sockaddr_in in its place. @param ip 4 or 16 bytes
inline sockaddr_in6 SocketAddress(const uint8_t* ip, size_t bytes, uint16_t port, uint32_t scopeId) {
  sockaddr_in6 address{};
  if (bytes == 16) {
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    address.sin6_scope_id = scopeId;
    memcpy(&address.sin6_addr, ip, 16);
  } else {
    auto& address4 = reinterpret_cast<sockaddr_in&>(address);
    address4.sin_family = AF_INET;
    address4.sin_port = htons(port);
    memcpy(&address4.sin_addr, ip, 4);
  }
  return address;
}

inline bool IsIpv6(const sockaddr_in6& address) { return address.sin6_family == AF_INET6; }

inline socklen_t SizeOf(const sockaddr_in6& address) {
  return IsIpv6(address) ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

/// Returns the port of a socket address.
inline uint16_t PortOf(const sockaddr_in6& address) {
  return ntohs(IsIpv6(address) ? address.sin6_port : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

/// Returns the IP address of a socket address, and its length.
inline const void* IpOf(const sockaddr_in6& address) {
  if (IsIpv6(address)) return &address.sin6_addr;
  return &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
}

inline size_t IpBytes(const sockaddr_in6& address) { return IsIpv6(address) ? 16 : 4; }

/// Returns whether the socket address has this IP address of 4 or 16 bytes.
inline bool HasIp(const sockaddr_in6& address, const uint8_t* ip, size_t bytes) {
  return bytes == IpBytes(address) && memcmp(IpOf(address), ip, bytes) == 0;
}
