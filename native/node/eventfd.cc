// The functions of eventfds (core/eventfd.h). The thread that opens one owns it.
#include "core/eventfd.h"
#include "arguments.h"
#include "exports.h"
#include "fds.h"

namespace {

// eventfdOpen(): a file descriptor or -errno
Napi::Value Open(const Napi::CallbackInfo& info) { return OwnFd(info.Env(), OpenEventfd()); }

// eventfdSignal(fd)
void Signal(const Napi::CallbackInfo& info) { SignalEventfd(IntAt(info, 0)); }

// eventfdClear(fd)
void Clear(const Napi::CallbackInfo& info) { ClearEventfd(IntAt(info, 0)); }

// eventfdWait(fd, other, nanoseconds)
void Wait(const Napi::CallbackInfo& info) {
  const double nanoseconds = info[2].As<Napi::Number>();
  WaitForEventfd(IntAt(info, 0), IntAt(info, 1), static_cast<int64_t>(nanoseconds));
}

}  // namespace

void DefineEventfds(Napi::Object exports) {
  exports.Set("eventfdOpen", Napi::Function::New<Open>(exports.Env(), "eventfdOpen"));
  exports.Set("eventfdSignal", Napi::Function::New<Signal>(exports.Env(), "eventfdSignal"));
  exports.Set("eventfdClear", Napi::Function::New<Clear>(exports.Env(), "eventfdClear"));
  exports.Set("eventfdWait", Napi::Function::New<Wait>(exports.Env(), "eventfdWait"));
}
