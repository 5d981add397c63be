// The addon moves frames, and does the links' part of their ICRC. Every function is one system call, or one batch of them, and
// answers with a count or with a negative errno; arguments are judged and errors are worded in src/. Shapes: src/native.ts.
#include <napi.h>

#include "fds.h"
#include "icrc.h"

Napi::Function PacketSocket(Napi::Env env);
Napi::Function UdpSockets(Napi::Env env);
Napi::Function XskSocket(Napi::Env env);
Napi::Function XskWakeTx(Napi::Env env);
Napi::Function XskWakeRx(Napi::Env env);
Napi::Function HoldGroup(Napi::Env env);
Napi::Function Waiter(Napi::Env env);
Napi::Function Borrowed(Napi::Env env);
Napi::Function FdKeep(Napi::Env env);
Napi::Function FdCopy(Napi::Env env);
Napi::Function FdClose(Napi::Env env);
Napi::Function WakerOpen(Napi::Env env);
Napi::Function WakerWake(Napi::Env env);
Napi::Function WakerEmpty(Napi::Env env);
Napi::Function WakerSleep(Napi::Env env);
Napi::Function NameHold(Napi::Env env);
Napi::Function NameIsHeld(Napi::Env env);
Napi::Function NetlinkExchange(Napi::Env env);
Napi::Function NetlinkListen(Napi::Env env);
Napi::Function NetlinkDrain(Napi::Env env);

// crcMethods(): what this processor knows, best first
static Napi::Value MethodNames(const Napi::CallbackInfo& info) {
  auto names = Napi::Array::New(info.Env());
  for (const CrcMethod& method : CrcMethods()) names.Set(names.Length(), method.name);
  return names;
}

// crc(name of a method, register, a multiple of 256 bytes): the register after them
static Napi::Value CrcBy(const Napi::CallbackInfo& info) {
  const std::string name = info[0].As<Napi::String>();
  auto bytes = info[2].As<Napi::Uint8Array>();
  uint32_t result = 0;
  for (const CrcMethod& method : CrcMethods())
    if (name == method.name)
      result = method.crc(info[1].As<Napi::Number>(), bytes.Data(), static_cast<uint32_t>(bytes.ByteLength()));
  return Napi::Number::New(info.Env(), result);
}

static Napi::Object Init(Napi::Env env, Napi::Object exports) {
  OwnFds(env);
  exports.Set("crcMethods", Napi::Function::New<MethodNames>(env));
  exports.Set("crc", Napi::Function::New<CrcBy>(env));
  exports.Set("PacketSocket", PacketSocket(env));
  exports.Set("UdpSockets", UdpSockets(env));
  exports.Set("XskSocket", XskSocket(env));
  exports.Set("xskWakeTx", XskWakeTx(env));
  exports.Set("xskWakeRx", XskWakeRx(env));
  exports.Set("holdGroup", HoldGroup(env));
  exports.Set("Waiter", Waiter(env));
  exports.Set("Borrowed", Borrowed(env));
  exports.Set("keepFd", FdKeep(env));
  exports.Set("copyFd", FdCopy(env));
  exports.Set("closeFd", FdClose(env));
  exports.Set("wakerOpen", WakerOpen(env));
  exports.Set("wakerWake", WakerWake(env));
  exports.Set("wakerEmpty", WakerEmpty(env));
  exports.Set("wakerSleep", WakerSleep(env));
  exports.Set("nameHold", NameHold(env));
  exports.Set("nameIsHeld", NameIsHeld(env));
  exports.Set("netlinkExchange", NetlinkExchange(env));
  exports.Set("netlinkListen", NetlinkListen(env));
  exports.Set("netlinkDrain", NetlinkDrain(env));
  return exports;
}

NODE_API_MODULE(wasm_roce, Init)
