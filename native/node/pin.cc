#include "pin.h"

#include <dlfcn.h>

namespace {

/// A std::shared_ptr<v8::BackingStore>, whose parts only V8 knows. Its form does not depend on the C++ library, and
/// because it has a destructor, it is passed and returned in memory. V8 moves out of it, so that nothing remains.
struct BackingStore {
  ~BackingStore() {}
  void* parts[2];
};

// v8::ArrayBuffer::GetBackingStore(), v8::ArrayBuffer::New(Isolate*, std::shared_ptr<BackingStore>) and
// v8::Isolate::GetCurrent(). A napi_value is a v8::Local.
using GetBackingStore = BackingStore (*)(napi_value buffer);
using NewArrayBuffer = napi_value (*)(void* isolate, BackingStore store);
using CurrentIsolate = void* (*)();

template <typename Function>
Function Symbol(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

Napi::Value SecondOwner(Napi::ArrayBuffer buffer) {
  static const auto getBackingStore = Symbol<GetBackingStore>("_ZN2v811ArrayBuffer15GetBackingStoreEv");
  static const auto newArrayBuffer =
      Symbol<NewArrayBuffer>("_ZN2v811ArrayBuffer3NewEPNS_7IsolateESt10shared_ptrINS_12BackingStoreEE");
  static const auto currentIsolate = Symbol<CurrentIsolate>("_ZN2v87Isolate10GetCurrentEv");
  if (getBackingStore == nullptr || newArrayBuffer == nullptr || currentIsolate == nullptr) return {};
  return {buffer.Env(), newArrayBuffer(currentIsolate(), getBackingStore(buffer))};
}
