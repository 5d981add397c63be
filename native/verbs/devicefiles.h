// The files by which programs look for RDMA devices. The process shows those of its own device, whatever the host has:
// /sys/class/infiniband and its relatives, as rxe has them, and /dev/infiniband. They are in a folder of the process,
// and functions that take paths (paths.cc) go there.
#pragma once
#include <linux/limits.h>
#include <sys/stat.h>
#include <string>

/// A path as the process shows it.
class ShownPath {
 public:
  explicit ShownPath(const char* path);
  ShownPath(const ShownPath&) = delete;
  ShownPath& operator=(const ShownPath&) = delete;
  /// The path to use: that of a file of the device, else as the program gave it.
  const char* Get() const { return path_; }

 private:
  const char* path_;
  char room_[PATH_MAX];
};

class Port;

/// Shows the state and the GID table of a port from now on: rules of faults have changed them.
void ShowPort(const Port& port);

/// Turns the path of a file of the device into the one that programs know. Others stay.
void HidePlace(char* path);

/// Shows a file of /dev/infiniband as a character device: it is a plain file, as only privileged processes make others.
void ShowDevice(struct stat& status);
void ShowDevice(struct statx& status);
