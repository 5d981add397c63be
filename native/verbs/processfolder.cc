#include "processfolder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "core/fd.h"
#include "settings.h"

namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "wasm-roce-device-";
constexpr const char* kLock = "/lock";
/// A folder without a lock is of a process that has just made it, or was killed then.
constexpr time_t kMakingSeconds = 60;
constexpr int kAttempts = 3;

std::string Base() {
  const char* temporary = Setting("TMPDIR");
  for (const char* each : {temporary, "/dev/shm"})
    if (each != nullptr && access(each, W_OK | X_OK) == 0) return each;
  return "/tmp";
}

void RemoveUnused(const std::string& folder) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid()) return;
  int lock = open((folder + kLock).c_str(), O_RDONLY | O_CLOEXEC);
  const bool isBeingMade = lock < 0 && time(nullptr) - status.st_mtime < kMakingSeconds;
  const bool isUsed = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0;
  std::error_code ignored;
  if (!isBeingMade && !isUsed) fs::remove_all(folder, ignored);
  CloseFd(lock);
}

/// Removes the folders of processes that were killed.
void RemoveAllUnused(const std::string& base) {
  std::error_code error;
  for (fs::directory_iterator each(base, error), end; !error && each != end; each.increment(error))
    if (each->path().filename().native().rfind(kName, 0) == 0) RemoveUnused(each->path());
}

/// Takes the lock of a folder that this process has made. @returns its descriptor; -1: another process has taken the
/// folder for one that was left
int TakeLock(const std::string& folder) {
  const std::string path = folder + kLock;
  int lock = open(path.c_str(), O_CREAT | O_EXCL | O_RDONLY | O_CLOEXEC, 0600);
  if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && access(path.c_str(), F_OK) == 0) return lock;
  CloseFd(lock);
  return -1;
}

}  // namespace

bool ProcessFolder::Make() {
  const std::string base = Base();
  RemoveAllUnused(base);
  for (int attempt = 0; attempt < kAttempts; attempt++) {
    path_ = base + "/" + kName + "XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) return false;
    lock_ = TakeLock(path_);
    // a program may give up its user after this
    if (lock_ >= 0) return chmod(path_.c_str(), 0755) == 0;
  }
  return false;
}

bool ProcessFolder::Exists() const { return access((path_ + kLock).c_str(), F_OK) == 0; }

void ProcessFolder::Remove() {
  if (lock_ < 0) return;
  // children that have inherited the lock have it still
  CloseFd(lock_);
  RemoveUnused(path_);
}
