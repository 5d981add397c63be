// Last frames of the environment: they leave when it ends, or when the process does (core/lastframes.h).
#include "core/lastframes.h"
#include "arguments.h"
#include "exports.h"
#include "fds.h"

namespace {

Napi::Value NumberOf(const Napi::CallbackInfo& info, int64_t value) {
  return Napi::Number::New(info.Env(), static_cast<double>(value));
}

// lastFrameKeep(fd, frame, ifindex): a number for lastFrameDrop, or -errno
Napi::Value Keep(const Napi::CallbackInfo& info) {
  const auto frame = BytesAt(info, 1);
  const napi_env env = info.Env();
  return NumberOf(info, KeepLastFrame(env, IntAt(info, 0), frame.Data(), frame.ByteLength(), IntAt(info, 2)));
}

// lastFrameDrop(number of lastFrameKeep)
void Drop(const Napi::CallbackInfo& info) {
  DropLastFrame(static_cast<uint64_t>(info[0].As<Napi::Number>().Int64Value()));
}

// lastFrameSignals(): handles the signals that would end the process now
void HandleSignals(const Napi::CallbackInfo&) { SendLastFramesAtSignals(); }

// lastFrameSocket(): a packet socket that only sends, or -errno
Napi::Value OpenSocket(const Napi::CallbackInfo& info) { return OwnFd(info.Env(), OpenSendingPacketSocket()); }

}  // namespace

void DefineLastFrames(Napi::Object exports) {
  const Napi::Env env = exports.Env();
  const napi_env owner = env;
  napi_add_env_cleanup_hook(env, [](void* ended) { EndLastFramesOf(ended); }, owner);
  exports.Set("lastFrameKeep", Napi::Function::New<Keep>(env, "lastFrameKeep"));
  exports.Set("lastFrameSignals", Napi::Function::New<HandleSignals>(env, "lastFrameSignals"));
  exports.Set("lastFrameDrop", Napi::Function::New<Drop>(env, "lastFrameDrop"));
  exports.Set("lastFrameSocket", Napi::Function::New<OpenSocket>(env, "lastFrameSocket"));
}
