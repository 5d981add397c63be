// A tap: a packet socket that sees the RoCEv2 frames of an interface in both directions, with the kernel's time of each
// (SO_TIMESTAMPING, software). It costs the sockets that move the frames nothing.
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <linux/if_ether.h>
#include <linux/net_tstamp.h>
#include <napi.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

#include "core/clock.h"
#include "core/fd.h"
#include "core/roce_filter.h"
#include "exports.h"
#include "fds.h"

namespace {

constexpr int kBufferBytes = 4 << 20;

int OpenTap(int ifindex) {
  // Protocol 0: nothing arrives before the filter is attached and the socket is bound.
  const int fd = KernelSocket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK);
  if (fd < 0) return -errno;
  const int stamps = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = ifindex;
  // the kernel may allow less
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kBufferBytes, sizeof kBufferBytes);
  if (AttachFilter(fd, kRoceFilter) == 0 &&
      setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof stamps) == 0 &&
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
    return fd;
  const int failed = errno;
  close(fd);
  return -failed;
}

// tapOpen(ifindex): a file descriptor or -errno
Napi::Value Open(const Napi::CallbackInfo& info) { return OwnFd(info.Env(), OpenTap(info[0].As<Napi::Number>())); }

// tapRead(fd, frame, times): 1, or 0 if there is none
Napi::Value Read(const Napi::CallbackInfo& info) {
  const int fd = info[0].As<Napi::Number>();
  auto frame = info[1].As<Napi::Uint8Array>();
  auto times = info[2].As<Napi::BigInt64Array>();
  sockaddr_ll from{};
  iovec data{frame.Data(), frame.ByteLength()};
  alignas(cmsghdr) char control[256];
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t length;
  do length = recvmsg(fd, &message, MSG_DONTWAIT | MSG_TRUNC);
  while (length < 0 && errno == EINTR);
  if (length < 0) return Napi::Number::New(info.Env(), 0);
  times[0] = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SO_TIMESTAMPING) continue;
    scm_timestamping stamps;
    std::memcpy(&stamps, CMSG_DATA(c), sizeof stamps);
    times[0] = Nanoseconds(stamps.ts[0]);
  }
  times[1] = length;
  times[2] = from.sll_pkttype == PACKET_OUTGOING;
  return Napi::Number::New(info.Env(), 1);
}

// clockOffset(result): [CLOCK_REALTIME less CLOCK_MONOTONIC, what it may be off], of the closest of some readings
void ReadOffset(const Napi::CallbackInfo& info) {
  auto result = info[0].As<Napi::BigInt64Array>();
  int64_t best = INT64_MAX;
  for (int i = 0; i < 4; i++) {
    const int64_t before = TimeOf(CLOCK_MONOTONIC);
    const int64_t wall = TimeOf(CLOCK_REALTIME);
    const int64_t between = TimeOf(CLOCK_MONOTONIC) - before;
    if (between >= best) continue;
    best = between;
    result[0] = wall - before - between / 2;
  }
  result[1] = (best + 1) / 2;
}

}  // namespace

void DefineTaps(Napi::Object exports) {
  exports.Set("tapOpen", Napi::Function::New<Open>(exports.Env(), "tapOpen"));
  exports.Set("tapRead", Napi::Function::New<Read>(exports.Env(), "tapRead"));
  exports.Set("clockOffset", Napi::Function::New<ReadOffset>(exports.Env(), "clockOffset"));
}
