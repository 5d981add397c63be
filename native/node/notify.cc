// One datagram to a Unix socket, which Node cannot send: the notifications of sd_notify(3).
#include <napi.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "core/fd.h"
#include "exports.h"

namespace {

// notify(path, text): 0 or -errno
Napi::Value SendDatagram(const Napi::CallbackInfo& info) {
  const std::string path = info[0].As<Napi::String>();
  const std::string text = info[1].As<Napi::String>();
  const auto result = [&](int code) { return Napi::Number::New(info.Env(), code); };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) return result(-ENAMETOOLONG);
  std::memcpy(address.sun_path, path.data(), path.size());
  size_t length = offsetof(sockaddr_un, sun_path) + path.size();
  // an abstract name begins with a zero byte and has none at its end
  if (path[0] == '@') address.sun_path[0] = '\0';
  else length++;
  const int fd = KernelSocket(AF_UNIX, SOCK_DGRAM);
  if (fd < 0) return result(-errno);
  // a manager that does not read must not block the event loop for ever
  const timeval limit{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  ssize_t sent;
  do sent = sendto(fd, text.data(), text.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(length));
  while (sent < 0 && errno == EINTR);
  const int failed = sent < 0 ? errno : 0;
  close(fd);
  return result(-failed);
}

}  // namespace

void DefineNotify(Napi::Object exports) {
  exports.Set("notify", Napi::Function::New<SendDatagram>(exports.Env(), "notify"));
}
