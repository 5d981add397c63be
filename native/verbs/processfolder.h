// A folder for files of this process, which goes with its last user: the process, or a child that it has forked. The
// next process that makes one removes those of processes that were killed.
#pragma once
#include <string>

class ProcessFolder {
 public:
  ProcessFolder() = default;
  ~ProcessFolder() { Remove(); }
  ProcessFolder(const ProcessFolder&) = delete;
  ProcessFolder& operator=(const ProcessFolder&) = delete;

  /// Makes it in TMPDIR, /dev/shm or /tmp. @returns false if that is not possible
  bool Make();
  /// Whether nobody has removed it: a process that has forked this one does as it ends, if this one has closed its
  /// descriptors.
  bool Exists() const;
  /// Removes it, unless another process uses it.
  void Remove();
  const std::string& Path() const { return path_; }

 private:
  std::string path_;
  /// The lock of a process that uses it.
  int lock_ = -1;
};
