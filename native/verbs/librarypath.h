// Libraries by the names of their files.
#pragma once
#include <cstring>

/// Whether a path leads to a library, of any version. @param name of its file up to `.so`
inline bool IsLibrary(const char* path, const char* name) {
  const char* slash = strrchr(path, '/');
  return strncmp(slash == nullptr ? path : slash + 1, name, strlen(name)) == 0;
}
