// The host's own functions of files, which paths.cc stands in front of. Before glibc 2.33, those of `struct stat` were
// functions of a program's own, over others with a number in front.
#pragma once
#include <sys/stat.h>

int HostStat(const char* path, struct stat* status);
int HostLstat(const char* path, struct stat* status);
int HostFstat(int fd, struct stat* status);
int HostFstatat(int folder, const char* path, struct stat* status, int flags);
