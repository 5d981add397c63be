#include "plainfiles.h"

#include "next.h"

namespace {

/// The number of `struct stat` as 64-bit processors have it: x86-64 has 1, others 0.
#ifdef __x86_64__
constexpr int kStatVersion = 1;
#else
constexpr int kStatVersion = 0;
#endif

}  // namespace

int HostStat(const char* path, struct stat* status) {
  static const auto next = Next<int (*)(const char*, struct stat*)>("stat");
  static const auto old = Next<int (*)(int, const char*, struct stat*)>("__xstat");
  return next != nullptr ? next(path, status) : old(kStatVersion, path, status);
}

int HostLstat(const char* path, struct stat* status) {
  static const auto next = Next<int (*)(const char*, struct stat*)>("lstat");
  static const auto old = Next<int (*)(int, const char*, struct stat*)>("__lxstat");
  return next != nullptr ? next(path, status) : old(kStatVersion, path, status);
}

int HostFstat(int fd, struct stat* status) {
  static const auto next = Next<int (*)(int, struct stat*)>("fstat");
  static const auto old = Next<int (*)(int, int, struct stat*)>("__fxstat");
  return next != nullptr ? next(fd, status) : old(kStatVersion, fd, status);
}

int HostFstatat(int folder, const char* path, struct stat* status, int flags) {
  static const auto next = Next<int (*)(int, const char*, struct stat*, int)>("fstatat");
  static const auto old = Next<int (*)(int, int, const char*, struct stat*, int)>("__fxstatat");
  return next != nullptr ? next(folder, path, status, flags) : old(kStatVersion, folder, path, status, flags);
}
