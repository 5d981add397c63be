#include "unixsocket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <cerrno>
#include <cstring>

#include "fd.h"

namespace {

/// Most file descriptors of one message (SCM_MAX_FD).
constexpr size_t kMaxFds = 253;
constexpr size_t kMaxBytes = 65536;
constexpr int kBacklog = 511;

/// Calls `use` with a new socket and the address of an abstract name. @returns the file descriptor or -errno
template <typename Use>
int WithName(const std::string& name, Use use) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) return -ENAMETOOLONG;
  memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  int fd = OpenUnixSocket(SOCK_SEQPACKET);
  if (fd < 0 || use(fd, reinterpret_cast<sockaddr*>(&address), length) == 0) return fd;
  const int failed = errno;
  CloseFd(fd);
  return -failed;
}

void TakeFds(msghdr& message, std::vector<int>& fds) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int), first = fds.size();
    fds.resize(first + count);
    memcpy(fds.data() + first, CMSG_DATA(c), count * sizeof(int));
  }
}

}  // namespace

int OpenUnixSocket(int type) {
  const int fd = KernelSocket(AF_UNIX, type | SOCK_NONBLOCK);
  return fd < 0 ? -errno : fd;
}

int ListenUnix(const std::string& name) {
  return WithName(name, [](int fd, const sockaddr* address, socklen_t length) {
    return bind(fd, address, length) == 0 ? listen(fd, kBacklog) : -1;
  });
}

int ConnectUnix(const std::string& name) { return WithName(name, connect); }

int SendUnix(int fd, const void* bytes, size_t count, const std::vector<int>& fds) {
  if (fds.size() > kMaxFds) return -EINVAL;
  const size_t fdBytes = fds.size() * sizeof(int);
  std::vector<uint8_t> control(fds.empty() ? 0 : CMSG_SPACE(fdBytes));
  iovec data{const_cast<void*>(bytes), count};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fdBytes);
    memcpy(CMSG_DATA(c), fds.data(), fdBytes);
  }
  ssize_t sent;
  do sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent < 0 ? -errno : 0;
}

int ReceiveUnix(int fd, bool peeks, UnixMessage& received) {
  received.bytes.resize(kMaxBytes);
  received.fds.clear();
  alignas(cmsghdr) uint8_t control[CMSG_SPACE(kMaxFds * sizeof(int))];
  iovec data{received.bytes.data(), received.bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t bytes;
  do bytes = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | (peeks ? MSG_PEEK : 0));
  while (bytes < 0 && errno == EINTR);
  const int failed = bytes < 0 ? errno : 0;
  received.bytes.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes));
  if (failed != 0) return -failed;
  TakeFds(message, received.fds);
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) return 0;
  for (int& each : received.fds) CloseFd(each);
  received.fds.clear();
  return -EMSGSIZE;
}
