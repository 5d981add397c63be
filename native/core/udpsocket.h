// UDP sockets that carry the payload of RoCE frames.
//
// The ICRC covers fields of the IP header that the kernel writes, so these must be predictable: an unconnected socket
// with IP_PMTUDISC_DO sends identification 0 and "don't fragment". (A connected socket counts up from a random number.)
#pragma once
#include <netinet/in.h>

/// Which other sockets may be bound to the same address and port.
enum class Sharing {
  kNone,
  /// Any: for multicast groups (SO_REUSEADDR).
  kGroup,
  /// Those of one user. The kernel gives each datagram to one of them (SO_REUSEPORT).
  kPort,
};

/// The UDP checksum of sent datagrams.
enum class Checksum { kPresent, kZero };

/// Sets how the UDP checksum of sent datagrams is. GRO joins no datagrams without one. @returns 0 or -errno
int SetChecksum(int fd, bool isIpv6, Checksum checksum);

/// Opens a socket, and binds it to a local address or to a multicast group.
/// @param bufferBytes of its receive buffer and of its send buffer @returns 0 or -errno; `fd` may be open then
int OpenUdpSocket(int& fd, const sockaddr_in6& address, int bufferBytes, Sharing sharing);
