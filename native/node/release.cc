// Gives the pages of a memory back to the kernel. JavaScript cannot: it frees a WebAssembly.Memory only when it
// collects garbage, which does not know how large that is.
#include <napi.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdint>

#include "exports.h"

namespace {

// releasePages(bytes): the pages that lie in these bytes all over; they read as zero from then on
void Release(const Napi::CallbackInfo& info) {
  auto bytes = info[0].As<Napi::Uint8Array>();
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.Data());
  const uintptr_t first = (begin + page - 1) & ~(page - 1), end = (begin + bytes.ByteLength()) & ~(page - 1);
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace

void DefineReleasePages(Napi::Object exports) {
  exports.Set("releasePages", Napi::Function::New<Release>(exports.Env(), "releasePages"));
}
