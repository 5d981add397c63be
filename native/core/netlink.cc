#include "netlink.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <cerrno>
#include <cstring>

#include "fd.h"

namespace {

/// Returns whether the reply ends within these bytes: with NLMSG_DONE, or with the acknowledgement of a single request.
bool Ends(const uint8_t* bytes, size_t length) {
  while (length >= sizeof(nlmsghdr)) {
    nlmsghdr header;
    memcpy(&header, bytes, sizeof header);
    if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR) return true;
    size_t step = NLMSG_ALIGN(header.nlmsg_len);
    if (header.nlmsg_len < sizeof header || step > length) return false;
    bytes += step;
    length -= step;
  }
  return false;
}

}  // namespace

int NetlinkExchange(int protocol, const uint8_t* request, size_t bytes, std::vector<uint8_t>& reply) {
  int fd = KernelSocket(AF_NETLINK, SOCK_RAW, protocol);
  if (fd < 0) return -errno;
  // The kernel replies before sendto returns. The timeout is for the case that it does not.
  const timeval limit{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  int result = 0;
  if (sendto(fd, request, bytes, 0, reinterpret_cast<sockaddr*>(&kernel), sizeof kernel) < 0) result = -errno;
  for (bool ended = false; result == 0 && !ended;) {
    uint8_t part[32768];
    ssize_t received = recv(fd, part, sizeof part, 0);
    if (received <= 0) {
      result = received == 0 ? -EIO : -errno;
      break;
    }
    reply.insert(reply.end(), part, part + received);
    ended = Ends(part, static_cast<size_t>(received));
  }
  CloseFd(fd);
  return result;
}

int NetlinkListen(uint32_t groups) {
  int fd = KernelSocket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (fd < 0) return -errno;
  sockaddr_nl own{};
  own.nl_family = AF_NETLINK;
  own.nl_groups = groups;
  if (bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) == 0) return fd;
  const int failed = errno;
  CloseFd(fd);
  return -failed;
}

int NetlinkReceive(int fd, uint8_t* into, size_t room) {
  ssize_t received;
  do received = recv(fd, into, room, 0);
  while (received < 0 && errno == EINTR);
  return received < 0 ? -errno : static_cast<int>(received);
}
