// /dev/infiniband/rdma_cm: what functions of files do for it.
#pragma once

/// Numbers of the character device: misc, and any minor.
constexpr unsigned kRdmaCmMajor = 10, kRdmaCmMinor = 58;

/// Opens the file. @returns its descriptor; -1 with errno
int OpenRdmaCm(int flags);

/// Returns whether a descriptor is one that OpenRdmaCm has returned, and that is not closed.
bool IsRdmaCm(int fd);
