// Membership of a multicast group by a socket that does nothing else.
#include <napi.h>
#include <sys/socket.h>
#include <cerrno>

#include "core/fd.h"
#include "core/group.h"
#include "exports.h"
#include "fds.h"

namespace {

// joinGroup(address of 4 or 16 bytes, ifindex): a file descriptor that keeps the membership until it is closed, or
// -errno
Napi::Value Join(const Napi::CallbackInfo& info) {
  auto ip = info[0].As<Napi::Uint8Array>();
  const bool isIpv6 = ip.ByteLength() == 16;
  int fd = KernelSocket(isIpv6 ? AF_INET6 : AF_INET, SOCK_DGRAM);
  if (fd < 0) return Napi::Number::New(info.Env(), -errno);
  const int result = SetMembership(fd, ip.Data(), isIpv6, info[1].As<Napi::Number>(), true);
  if (result < 0) CloseFd(fd);
  return OwnFd(info.Env(), result < 0 ? result : fd);
}

}  // namespace

void DefineJoinGroup(Napi::Object exports) {
  exports.Set("joinGroup", Napi::Function::New<Join>(exports.Env(), "joinGroup"));
}
