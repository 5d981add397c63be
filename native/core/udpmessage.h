// The message of a UDP socket that sends the payload of a frame: destination and control data from its headers.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <cstring>

#include "headers.h"

/// Bytes of control data that AddressMessage adds.
constexpr size_t kAddressControlBytes = 2 * CMSG_SPACE(sizeof(int));

/// Adds control data to a message, whose `msg_control` has room for it.
template <typename T>
void PutControl(msghdr& header, int level, int type, T value) {
  auto c = reinterpret_cast<cmsghdr*>(static_cast<uint8_t*>(header.msg_control) + header.msg_controllen);
  c->cmsg_level = level;
  c->cmsg_type = type;
  c->cmsg_len = CMSG_LEN(sizeof value);
  memcpy(CMSG_DATA(c), &value, sizeof value);
  header.msg_controllen += CMSG_SPACE(sizeof value);
}

/// Sets the destination of a message, and adds traffic class and hop limit.
/// @param name becomes its `msg_name`: a sockaddr_in6, or a sockaddr_in in its place
/// @param scopeId of a link-local destination
inline void AddressMessage(msghdr& header, sockaddr_in6& name, const Datagram& datagram, uint32_t scopeId) {
  name = {};
  header.msg_name = &name;
  const int hops = datagram.hopLimit == 0 ? 1 : datagram.hopLimit;
  if (datagram.isIpv6) {
    name.sin6_family = AF_INET6;
    name.sin6_port = htons(datagram.destinationPort);
    name.sin6_scope_id = scopeId;
    memcpy(&name.sin6_addr, datagram.destination, 16);
    header.msg_namelen = sizeof(sockaddr_in6);
    PutControl<int>(header, IPPROTO_IPV6, IPV6_TCLASS, datagram.trafficClass);
    PutControl<int>(header, IPPROTO_IPV6, IPV6_HOPLIMIT, hops);
  } else {
    auto& name4 = reinterpret_cast<sockaddr_in&>(name);
    name4.sin_family = AF_INET;
    name4.sin_port = htons(datagram.destinationPort);
    memcpy(&name4.sin_addr, datagram.destination, 4);
    header.msg_namelen = sizeof(sockaddr_in);
    PutControl<int>(header, IPPROTO_IP, IP_TOS, datagram.trafficClass);
    PutControl<int>(header, IPPROTO_IP, IP_TTL, hops);
  }
}
