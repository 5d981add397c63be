// Names of which the network namespace has each only once: abstract addresses of Unix sockets (unix(7)). The kernel takes a name
// back when its holder ends, however that ends.
#include <napi.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "fds.h"
#include "frames.h"

namespace {

// Calls `what` with a socket and the name as an address; its answer is the errno.
template <typename What>
int WithSocket(const Napi::CallbackInfo& info, int& fd, What what) {
  fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  const std::string name = info[0].As<Napi::String>();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // behind a zero byte, which makes it abstract
  const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return what(fd, reinterpret_cast<sockaddr*>(&address), size) < 0 ? errno : 0;
}

// nameHold(name): a file descriptor that holds it until it is closed, or -errno
Napi::Value HoldName(const Napi::CallbackInfo& info) {
  int fd;
  const int failed = WithSocket(info, fd, bind);
  if (failed != 0) CloseFd(fd);
  return HandOut(info.Env(), failed != 0 ? -failed : fd);
}

// nameIsHeld(name): by this process or another
Napi::Value IsNameHeld(const Napi::CallbackInfo& info) {
  int fd;
  const int failed = WithSocket(info, fd, connect);
  CloseFd(fd);
  return Napi::Boolean::New(info.Env(), failed == 0);
}

}  // namespace

Napi::Function NameHold(Napi::Env env) { return Napi::Function::New(env, HoldName, "nameHold"); }
Napi::Function NameIsHeld(Napi::Env env) { return Napi::Function::New(env, IsNameHeld, "nameIsHeld"); }
