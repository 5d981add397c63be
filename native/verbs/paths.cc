// Functions that take a path or tell of a file: those that programs look for RDMA devices with. Each asks for a file of
// the device by the path that the process shows it under. Files have 64-bit offsets on the processors of the library,
// so the functions with `64` in their names are the same ones.
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "abi.h"
#include "devicefiles.h"
#include "next.h"
#include "rdmacm.h"

namespace {

constexpr const char* kRdmaCm = "/dev/infiniband/rdma_cm";

bool TakesMode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

/// A function of its own, because the compiler takes it for granted that `open` has a path.
[[gnu::noipa]] bool IsRdmaCmPath(const char* path) { return path != nullptr && strcmp(path, kRdmaCm) == 0; }

int Shown(int result, struct stat* status) {
  if (result == 0) ShowDevice(*status);
  return result;
}

char* Shown(char* path) {
  if (path != nullptr) HidePlace(path);
  return path;
}

}  // namespace

VERBS_API int open(const char* path, int flags, ...) {
  static const auto next = Next<int (*)(const char*, int, ...)>("open");
  if (IsRdmaCmPath(path)) return OpenRdmaCm(flags);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = TakesMode(flags) ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return next(ShownPath(path).Get(), flags, mode);
}

VERBS_API int openat(int folder, const char* path, int flags, ...) {
  static const auto next = Next<int (*)(int, const char*, int, ...)>("openat");
  if (IsRdmaCmPath(path)) return OpenRdmaCm(flags);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = TakesMode(flags) ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return next(folder, ShownPath(path).Get(), flags, mode);
}

// Programs that are built with _FORTIFY_SOURCE call these when they give no mode.
VERBS_API int __open_2(const char* path, int flags) { return open(path, flags); }
VERBS_API int __openat_2(int folder, const char* path, int flags) { return openat(folder, path, flags); }

VERBS_API FILE* fopen(const char* path, const char* mode) {
  static const auto next = Next<FILE* (*)(const char*, const char*)>("fopen");
  return next(ShownPath(path).Get(), mode);
}

VERBS_API DIR* opendir(const char* path) {
  static const auto next = Next<DIR* (*)(const char*)>("opendir");
  return next(ShownPath(path).Get());
}

VERBS_API int scandir(const char* path, dirent*** entries, int (*filter)(const dirent*),
                      int (*compare)(const dirent**, const dirent**)) {
  static const auto next = Next<decltype(&::scandir)>("scandir");
  return next(ShownPath(path).Get(), entries, filter, compare);
}

VERBS_API int glob(const char* pattern, int flags, int (*fails)(const char*, int), glob_t* found) noexcept {
  static const auto next = Next<int (*)(const char*, int, int (*)(const char*, int), glob_t*)>("glob");
  const int result = next(ShownPath(pattern).Get(), flags, fails, found);
  const size_t first = flags & GLOB_DOOFFS ? found->gl_offs : 0;
  if (result == 0)
    for (size_t i = 0; i < found->gl_pathc; i++) HidePlace(found->gl_pathv[first + i]);
  return result;
}

VERBS_API int chdir(const char* path) noexcept {
  static const auto next = Next<int (*)(const char*)>("chdir");
  return next(ShownPath(path).Get());
}

VERBS_API char* getcwd(char* path, size_t bytes) noexcept {
  static const auto next = Next<char* (*)(char*, size_t)>("getcwd");
  return Shown(next(path, bytes));
}

VERBS_API int access(const char* path, int mode) noexcept {
  static const auto next = Next<int (*)(const char*, int)>("access");
  return next(ShownPath(path).Get(), mode);
}

VERBS_API int euidaccess(const char* path, int mode) noexcept {
  static const auto next = Next<int (*)(const char*, int)>("euidaccess");
  return next(ShownPath(path).Get(), mode);
}

VERBS_API int faccessat(int folder, const char* path, int mode, int flags) noexcept {
  static const auto next = Next<int (*)(int, const char*, int, int)>("faccessat");
  return next(folder, ShownPath(path).Get(), mode, flags);
}

VERBS_API int stat(const char* path, struct stat* status) noexcept {
  static const auto next = Next<int (*)(const char*, struct stat*)>("stat");
  return Shown(next(ShownPath(path).Get(), status), status);
}

VERBS_API int lstat(const char* path, struct stat* status) noexcept {
  static const auto next = Next<int (*)(const char*, struct stat*)>("lstat");
  return Shown(next(ShownPath(path).Get(), status), status);
}

VERBS_API int fstatat(int folder, const char* path, struct stat* status, int flags) noexcept {
  static const auto next = Next<int (*)(int, const char*, struct stat*, int)>("fstatat");
  return Shown(next(folder, ShownPath(path).Get(), status, flags), status);
}

VERBS_API int fstat(int fd, struct stat* status) noexcept {
  static const auto next = Next<int (*)(int, struct stat*)>("fstat");
  const int result = Shown(next(fd, status), status);
  if (result == 0 && IsRdmaCm(fd)) {
    status->st_mode = S_IFCHR | 0666;
    status->st_rdev = makedev(kRdmaCmMajor, kRdmaCmMinor);
  }
  return result;
}

VERBS_API int statx(int folder, const char* path, int flags, unsigned mask, struct statx* status) noexcept {
  static const auto next = Next<int (*)(int, const char*, int, unsigned, struct statx*)>("statx");
  const int result = next(folder, ShownPath(path).Get(), flags, mask, status);
  if (result == 0) ShowDevice(*status);
  return result;
}

VERBS_API ssize_t readlink(const char* path, char* to, size_t bytes) noexcept {
  static const auto next = Next<ssize_t (*)(const char*, char*, size_t)>("readlink");
  return next(ShownPath(path).Get(), to, bytes);
}

VERBS_API ssize_t readlinkat(int folder, const char* path, char* to, size_t bytes) noexcept {
  static const auto next = Next<ssize_t (*)(int, const char*, char*, size_t)>("readlinkat");
  return next(folder, ShownPath(path).Get(), to, bytes);
}

VERBS_API char* realpath(const char* path, char* to) noexcept {
  static const auto next = Next<char* (*)(const char*, char*)>("realpath");
  return Shown(next(ShownPath(path).Get(), to));
}

VERBS_API char* canonicalize_file_name(const char* path) noexcept { return realpath(path, nullptr); }

// The functions of programs that were built for glibc before 2.33, and with _FORTIFY_SOURCE.
VERBS_API int __xstat(int, const char* path, struct stat* status) noexcept { return stat(path, status); }
VERBS_API int __lxstat(int, const char* path, struct stat* status) noexcept { return lstat(path, status); }
VERBS_API int __fxstat(int, int fd, struct stat* status) noexcept { return fstat(fd, status); }
VERBS_API int __fxstatat(int, int folder, const char* path, struct stat* status, int flags) noexcept {
  return fstatat(folder, path, status, flags);
}
VERBS_API ssize_t __readlink_chk(const char* path, char* to, size_t bytes, size_t room) noexcept {
  static const auto next = Next<ssize_t (*)(const char*, char*, size_t, size_t)>("__readlink_chk");
  return next(ShownPath(path).Get(), to, bytes, room);
}
VERBS_API char* __realpath_chk(const char* path, char* to, size_t room) noexcept {
  static const auto next = Next<char* (*)(const char*, char*, size_t)>("__realpath_chk");
  return Shown(next(ShownPath(path).Get(), to, room));
}

#define SAME_AS(name) __attribute__((alias(name)))

VERBS_API int open64(const char* path, int flags, ...) SAME_AS("open");
VERBS_API int openat64(int folder, const char* path, int flags, ...) SAME_AS("openat");
VERBS_API int __open64_2(const char* path, int flags) SAME_AS("__open_2");
VERBS_API int __openat64_2(int folder, const char* path, int flags) SAME_AS("__openat_2");
VERBS_API FILE* fopen64(const char* path, const char* mode) SAME_AS("fopen");
VERBS_API int scandir64(const char* path, dirent64*** entries, int (*filter)(const dirent64*),
                        int (*compare)(const dirent64**, const dirent64**)) SAME_AS("scandir");
VERBS_API int glob64(const char* pattern, int flags, int (*fails)(const char*, int), glob64_t* found) noexcept
    SAME_AS("glob");
VERBS_API int eaccess(const char* path, int mode) noexcept SAME_AS("euidaccess");
VERBS_API int stat64(const char* path, struct stat64* status) noexcept SAME_AS("stat");
VERBS_API int lstat64(const char* path, struct stat64* status) noexcept SAME_AS("lstat");
VERBS_API int fstat64(int fd, struct stat64* status) noexcept SAME_AS("fstat");
VERBS_API int fstatat64(int folder, const char* path, struct stat64* status, int flags) noexcept SAME_AS("fstatat");
VERBS_API int __xstat64(int version, const char* path, struct stat64* status) noexcept SAME_AS("__xstat");
VERBS_API int __lxstat64(int version, const char* path, struct stat64* status) noexcept SAME_AS("__lxstat");
VERBS_API int __fxstat64(int version, int fd, struct stat64* status) noexcept SAME_AS("__fxstat");
VERBS_API int __fxstatat64(int version, int folder, const char* path, struct stat64* status, int flags) noexcept
    SAME_AS("__fxstatat");
