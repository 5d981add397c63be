#include "fds.h"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <unordered_set>

namespace {

/// Those that an environment has open. What is closed is forgotten first, as the kernel gives its number to the next who asks.
class OpenFds {
 public:
  OpenFds() = default;
  OpenFds(const OpenFds&) = delete;
  OpenFds& operator=(const OpenFds&) = delete;
  ~OpenFds() {
    for (int fd : fds_) close(fd);
  }
  void Add(int fd) { fds_.insert(fd); }
  void Close(int fd) {
    if (fds_.erase(fd) > 0) close(fd);
  }

 private:
  std::unordered_set<int> fds_;
};

// keepFd(fd): the same
Napi::Value Keep(const Napi::CallbackInfo& info) { return HandOut(info.Env(), info[0].As<Napi::Number>()); }

// copyFd(fd): another one for the same, or -errno
Napi::Value Copy(const Napi::CallbackInfo& info) {
  const int copy = fcntl(info[0].As<Napi::Number>(), F_DUPFD_CLOEXEC, 0);
  return HandOut(info.Env(), copy < 0 ? -errno : copy);
}

// closeFd(fd): nothing happens when it is none of this environment's
void Close(const Napi::CallbackInfo& info) { info.Env().GetInstanceData<OpenFds>()->Close(info[0].As<Napi::Number>()); }

}  // namespace

void OwnFds(Napi::Env env) { env.SetInstanceData(new OpenFds); }

Napi::Value HandOut(Napi::Env env, int fd) {
  if (fd >= 0) env.GetInstanceData<OpenFds>()->Add(fd);
  return Napi::Number::New(env, fd);
}

Napi::Function FdKeep(Napi::Env env) { return Napi::Function::New(env, Keep, "keepFd"); }
Napi::Function FdCopy(Napi::Env env) { return Napi::Function::New(env, Copy, "copyFd"); }
Napi::Function FdClose(Napi::Env env) { return Napi::Function::New(env, Close, "closeFd"); }
