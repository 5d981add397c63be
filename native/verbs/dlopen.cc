// Programs that open libibverbs while they run, by name or path, get this library, and its functions by any version.
#include <dlfcn.h>

#include "abi.h"
#include "librarypath.h"
#include "next.h"

namespace {

constexpr const char* kLibibverbs = "libibverbs.so";
/// Of the versions of public symbols.
constexpr const char* kVersion = "IBVERBS_1.";

/// Runs before an address sanitizer has its functions and its memory: it looks for functions of C with `dlvsym`.
#define BEFORE_SANITIZERS __attribute__((no_sanitize_address))

BEFORE_SANITIZERS bool BeginsWith(const char* text, const char* with) {
  for (; *with != 0; text++, with++)
    if (*text != *with) return false;
  return true;
}

bool IsLibibverbs(const char* name) { return name != nullptr && IsLibrary(name, kLibibverbs); }

/// Returns the path of this library.
const char* Self() {
  static Dl_info info;
  static const int found = dladdr(reinterpret_cast<void*>(&IsLibibverbs), &info);
  return found != 0 ? info.dli_fname : nullptr;
}

/// Returns a function of this library, or null.
void* Own(const char* name) {
  static void* const library = dlopen(Self(), RTLD_LAZY | RTLD_NOLOAD);
  return dlsym(library, name);
}

}  // namespace

// The last call of each has to be a jump, as optimizing compilers make it: the loader looks at who calls.

VERBS_API void* dlopen(const char* name, int flags) noexcept {
  static const auto next = Next<void* (*)(const char*, int)>("dlopen");
  return next(IsLibibverbs(name) ? Self() : name, flags);
}

VERBS_API BEFORE_SANITIZERS void* dlvsym(void* library, const char* name, const char* version) noexcept {
  static const auto next = Next<void* (*)(void*, const char*, const char*)>("dlvsym");
  void* const own = BeginsWith(version, kVersion) ? Own(name) : nullptr;
  return own != nullptr ? own : next(library, name, version);
}
