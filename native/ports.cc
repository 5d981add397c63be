#include "ports.h"

#include <netinet/udp.h>
#include <cerrno>
#include <cstring>

#include "frames.h"
#include "roce_filter.h"

int HeldPorts::Hold(const Napi::CallbackInfo& info) {
  auto ip = info[0].As<Napi::Uint8Array>();
  const uint16_t port = htons(info[1].As<Napi::Number>().Uint32Value());
  sockaddr_in6 address{};
  if (ip.ByteLength() == 16) {
    address.sin6_family = AF_INET6;
    address.sin6_port = port;
    address.sin6_scope_id = info[2].As<Napi::Number>();
    memcpy(&address.sin6_addr, ip.Data(), 16);
  } else {
    auto& address4 = reinterpret_cast<sockaddr_in&>(address);
    address4.sin_family = AF_INET;
    address4.sin_port = port;
    memcpy(&address4.sin_addr, ip.Data(), 4);
  }
  int fd = socket(address.sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const int refused = Bind(fd, reinterpret_cast<sockaddr*>(&address));
  if (refused == 0) {
    sockets_.push_back(fd);
  } else {
    CloseFd(fd);
  }
  return refused;
}

int HeldPorts::Bind(int fd, const sockaddr* address) const {
  const bool isIpv6 = address->sa_family == AF_INET6;
  const int on = 1, coalesces = coalesces_;
  SetReceiveBuffer(fd, 0);
  // An address whose duplicate detection still runs will do.
  if (isIpv6) setsockopt(fd, IPPROTO_IPV6, kIpv6FreeBind, &on, sizeof on);
  setsockopt(fd, IPPROTO_UDP, UDP_GRO, &coalesces, sizeof coalesces);
  // Several cards may hold the port of one address.
  if (AttachFilter(fd, kNothing) != 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0 ||
      bind(fd, address, isIpv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)) != 0)
    return -errno;
  return 0;
}

void HeldPorts::Release(const Napi::CallbackInfo& info) {
  auto ip = info[0].As<Napi::Uint8Array>();
  for (size_t i = 0; i < sockets_.size(); i++) {
    sockaddr_in6 bound{};
    socklen_t size = sizeof bound;
    if (getsockname(sockets_[i], reinterpret_cast<sockaddr*>(&bound), &size) != 0) continue;
    const bool isIpv6 = bound.sin6_family == AF_INET6;
    const void* address = isIpv6 ? static_cast<const void*>(&bound.sin6_addr)
                                 : &reinterpret_cast<const sockaddr_in&>(bound).sin_addr;
    if (ip.ByteLength() != (isIpv6 ? 16u : 4u) || memcmp(address, ip.Data(), ip.ByteLength()) != 0) continue;
    CloseFd(sockets_[i]);
    sockets_.erase(sockets_.begin() + static_cast<long>(i));
    return;
  }
}

void HeldPorts::Coalesce(bool coalesces) {
  coalesces_ = coalesces;
  const int value = coalesces;
  for (int fd : sockets_) setsockopt(fd, IPPROTO_UDP, UDP_GRO, &value, sizeof value);
}

void HeldPorts::Close() {
  for (int& fd : sockets_) CloseFd(fd);
  sockets_.clear();
}
