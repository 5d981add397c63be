#include "fds.h"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <unordered_set>

#include "core/lastframes.h"
#include "exports.h"

namespace {

/// The file descriptors that an environment owns. Close forgets a descriptor before it closes it, because the kernel
/// may give the number to another thread at once.
class OpenFds {
 public:
  OpenFds() = default;
  OpenFds(const OpenFds&) = delete;
  OpenFds& operator=(const OpenFds&) = delete;
  ~OpenFds() {
    for (int fd : fds_) {
      DropLastFramesOf(fd);
      close(fd);
    }
  }
  void Add(int fd) { fds_.insert(fd); }
  void Release(int fd) { fds_.erase(fd); }
  void Close(int fd) {
    if (fds_.erase(fd) == 0) return;
    DropLastFramesOf(fd);
    close(fd);
  }

 private:
  std::unordered_set<int> fds_;
};

// dupFd(fd): a duplicate of the descriptor, or -errno
Napi::Value Dup(const Napi::CallbackInfo& info) {
  const int copy = fcntl(info[0].As<Napi::Number>(), F_DUPFD_CLOEXEC, 0);
  return OwnFd(info.Env(), copy < 0 ? -errno : copy);
}

// closeFd(fd): does nothing if the environment does not own the descriptor
void Close(const Napi::CallbackInfo& info) { info.Env().GetInstanceData<OpenFds>()->Close(info[0].As<Napi::Number>()); }

// releaseFd(fd): the environment no longer owns the descriptor, which stays open
void Release(const Napi::CallbackInfo& info) {
  info.Env().GetInstanceData<OpenFds>()->Release(info[0].As<Napi::Number>());
}

}  // namespace

Napi::Value OwnFd(Napi::Env env, int fd) {
  if (fd >= 0) env.GetInstanceData<OpenFds>()->Add(fd);
  return Napi::Number::New(env, fd);
}

void DefineFds(Napi::Object exports) {
  exports.Env().SetInstanceData(new OpenFds);
  exports.Set("dupFd", Napi::Function::New<Dup>(exports.Env(), "dupFd"));
  exports.Set("closeFd", Napi::Function::New<Close>(exports.Env(), "closeFd"));
  exports.Set("releaseFd", Napi::Function::New<Release>(exports.Env(), "releaseFd"));
}
