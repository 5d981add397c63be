#include "ports.h"

#include <netinet/udp.h>
#include <cerrno>

#include "address.h"
#include "fd.h"
#include "roce_filter.h"

int BoundPorts::Bind(const sockaddr_in6& address, bool isShared) {
  int fd = KernelSocket(address.sin6_family, SOCK_DGRAM);
  if (fd < 0) return -errno;
  const int refused = BindSocket(fd, address, isShared);
  if (refused == 0) {
    sockets_.push_back(fd);
  } else {
    CloseFd(fd);
  }
  return refused;
}

int BoundPorts::BindSocket(int fd, const sockaddr_in6& address, bool isShared) const {
  const int on = 1, shared = isShared, gro = gro_;
  SetReceiveBuffer(fd, 0);
  // The address may still be tentative, during duplicate address detection.
  if (IsIpv6(address)) setsockopt(fd, IPPROTO_IPV6, kIpv6FreeBind, &on, sizeof on);
  setsockopt(fd, IPPROTO_UDP, UDP_GRO, &gro, sizeof gro);
  if (AttachFilter(fd, kNothing) != 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &shared, sizeof shared) != 0 ||
      bind(fd, reinterpret_cast<const sockaddr*>(&address), SizeOf(address)) != 0)
    return -errno;
  return 0;
}

void BoundPorts::Unbind(const uint8_t* ip, size_t bytes) {
  for (size_t i = 0; i < sockets_.size(); i++) {
    sockaddr_in6 bound{};
    socklen_t size = sizeof bound;
    if (getsockname(sockets_[i], reinterpret_cast<sockaddr*>(&bound), &size) != 0) continue;
    if (!HasIp(bound, ip, bytes)) continue;
    CloseFd(sockets_[i]);
    sockets_.erase(sockets_.begin() + static_cast<long>(i));
    return;
  }
}

void BoundPorts::SetGro(bool gro) {
  gro_ = gro;
  const int value = gro;
  for (int fd : sockets_) setsockopt(fd, IPPROTO_UDP, UDP_GRO, &value, sizeof value);
}

void BoundPorts::Close() {
  for (int& fd : sockets_) CloseFd(fd);
  sockets_.clear();
}
