#include "errorsocket.h"

#include <cerrno>
#include <cstring>
#include <ctime>

#include <linux/errqueue.h>  // needs timespec

#include "address.h"
#include "fd.h"
#include "roce_filter.h"
#include "udpmessage.h"

namespace {

/// @returns the errno of an ICMP error, or 0 for what the host itself says of a frame
int IcmpErrorOf(msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    const bool isError = (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) ||
                         (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR);
    if (!isError) continue;
    sock_extended_err error;
    memcpy(&error, CMSG_DATA(c), sizeof error);
    if (error.ee_origin != SO_EE_ORIGIN_ICMP && error.ee_origin != SO_EE_ORIGIN_ICMP6) return 0;
    return static_cast<int>(error.ee_errno);
  }
  return 0;
}

}  // namespace

int ErrorSocket::Open(const sockaddr_in6& address) {
  const int result = Bind(address);
  if (result != 0) Close();
  return result;
}

int ErrorSocket::Bind(const sockaddr_in6& address) {
  isIpv6_ = IsIpv6(address);
  scopeId_ = isIpv6_ ? address.sin6_scope_id : 0;
  fd_ = KernelSocket(address.sin6_family, SOCK_DGRAM | SOCK_NONBLOCK);
  if (fd_ < 0) return -errno;
  auto set = [&](int level, int option, int value) { return setsockopt(fd_, level, option, &value, sizeof value); };
  const bool isSet = isIpv6_ ? set(IPPROTO_IPV6, IPV6_V6ONLY, 1) == 0 && set(IPPROTO_IPV6, IPV6_RECVERR, 1) == 0 &&
                                   set(IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) == 0
                             : set(IPPROTO_IP, IP_RECVERR, 1) == 0 &&
                                   set(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) == 0;
  // it is readable for errors only
  if (!isSet || AttachFilter(fd_, kNothing) != 0) return -errno;
  if (bind(fd_, reinterpret_cast<const sockaddr*>(&address), SizeOf(address)) != 0) return -errno;
  sockaddr_in6 bound{};
  socklen_t size = sizeof bound;
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return -errno;
  port_ = PortOf(bound);
  return 0;
}

int ErrorSocket::Send(uint8_t* frame, uint32_t bytes) const {
  Datagram datagram;
  if (!ParseUdp(frame, bytes, datagram) || datagram.isIpv6 != isIpv6_) return -EINVAL;
  alignas(cmsghdr) uint8_t control[kAddressControlBytes];
  sockaddr_in6 name;
  iovec piece{datagram.payload, datagram.payloadBytes};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  AddressMessage(message, name, datagram, scopeId_);
  // The first call may return the error of an earlier frame, which the error queue has, too.
  if (sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 0;
  return sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ? 0 : -errno;
}

bool ErrorSocket::Read(IcmpError& result) const {
  for (;;) {
    sockaddr_in6 to{};
    alignas(cmsghdr) uint8_t control[512];
    msghdr message{};
    message.msg_name = &to;
    message.msg_namelen = sizeof to;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(fd_, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
      if (errno == EINTR) continue;
      // An error that found no room in the queue would keep the socket readable.
      int lost = 0;
      socklen_t size = sizeof lost;
      getsockopt(fd_, SOL_SOCKET, SO_ERROR, &lost, &size);
      return false;
    }
    const int error = IcmpErrorOf(message);
    if (error == 0) continue;
    result = {error, to};
    return true;
  }
}

void ErrorSocket::Close() { CloseFd(fd_); }
