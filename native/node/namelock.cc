// Names as locks on the bytes of a file (F_OFD_SETLK, fcntl(2)). The kernel releases a lock when its file descriptor is
// closed, also when the process is killed. The file stays empty: a byte need not exist to be locked.
#include <fcntl.h>
#include <napi.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <string>

#include "core/fd.h"
#include "exports.h"
#include "fds.h"

namespace {

struct flock LockOf(const Napi::CallbackInfo& info) {
  bool lossless;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = info[1].As<Napi::BigInt>().Int64Value(&lossless);
  lock.l_len = 1;
  return lock;
}

int OpenLocks(const Napi::CallbackInfo& info) {
  const std::string path = info[0].As<Napi::String>();
  return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
}

// nameLockTake(path, byte): a file descriptor that keeps the lock until it is closed, or -errno
Napi::Value Take(const Napi::CallbackInfo& info) {
  int fd = OpenLocks(info);
  struct flock lock = LockOf(info);
  int failed = fd < 0 || fcntl(fd, F_OFD_SETLK, &lock) != 0 ? errno : 0;
  // Not older than the lock, so that no cleaner of temporary files takes it for unused.
  if (failed == 0) futimens(fd, nullptr);
  if (failed != 0) CloseFd(fd);
  return OwnFd(info.Env(), failed != 0 ? -failed : fd);
}

// nameLockIsTaken(path, byte): whether any file descriptor has the lock
Napi::Value IsTaken(const Napi::CallbackInfo& info) {
  int fd = OpenLocks(info);
  struct flock lock = LockOf(info);
  const bool isTaken = fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  CloseFd(fd);
  return Napi::Boolean::New(info.Env(), isTaken);
}

}  // namespace

void DefineNameLocks(Napi::Object exports) {
  exports.Set("nameLockTake", Napi::Function::New<Take>(exports.Env(), "nameLockTake"));
  exports.Set("nameLockIsTaken", Napi::Function::New<IsTaken>(exports.Env(), "nameLockIsTaken"));
}
