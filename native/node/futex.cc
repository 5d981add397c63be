// Futexes of Int32Arrays, by which threads with JavaScript and threads without it wait for each other: Atomics.notify
// wakes the former only.
#include "core/futex.h"
#include "arguments.h"
#include "exports.h"

namespace {

const int32_t* WordOf(const Napi::CallbackInfo& info) {
  return info[0].As<Napi::Int32Array>().Data() + IntAt(info, 1);
}

// futexWait(words, index, value, milliseconds)
void Wait(const Napi::CallbackInfo& info) {
  const double milliseconds = info[3].As<Napi::Number>();
  FutexWait(WordOf(info), IntAt(info, 2), static_cast<int64_t>(milliseconds * 1e6));
}

// futexWake(words, index)
void Wake(const Napi::CallbackInfo& info) { FutexWake(WordOf(info)); }

}  // namespace

void DefineFutexes(Napi::Object exports) {
  exports.Set("futexWait", Napi::Function::New<Wait>(exports.Env(), "futexWait"));
  exports.Set("futexWake", Napi::Function::New<Wake>(exports.Env(), "futexWake"));
}
