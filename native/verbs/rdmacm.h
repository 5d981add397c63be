// The device file /dev/infiniband/rdma_cm, for the functions of files (paths.cc).
#pragma once

/// Numbers of the character device: misc, and any minor.
constexpr unsigned kRdmaCmMajor = 10, kRdmaCmMinor = 58;

/// Opens the file. @returns its descriptor; -1 with errno
int OpenRdmaCm(int flags);

/// Returns whether a descriptor is one that OpenRdmaCm has returned, and that is not closed.
bool IsRdmaCm(int fd);
