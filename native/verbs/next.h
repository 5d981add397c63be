// The functions of other libraries that this library stands in front of.
#pragma once
#include <dlfcn.h>

/// Returns the function of this name that comes next in the order of the dynamic loader; null if there is none.
template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
