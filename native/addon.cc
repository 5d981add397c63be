// The addon moves frames and nothing else. Every function is one system call, or one batch of them, and answers with a
// count or with a negative errno; arguments are judged and errors are worded in src/. Shapes: src/native.ts.
#include <napi.h>

Napi::Function PacketSocket(Napi::Env env);
Napi::Function UdpSockets(Napi::Env env);
Napi::Function XskSocket(Napi::Env env);
Napi::Function XskWakeTx(Napi::Env env);
Napi::Function XskWakeRx(Napi::Env env);
Napi::Function HoldGroup(Napi::Env env);
Napi::Function Waiter(Napi::Env env);
Napi::Function Borrowed(Napi::Env env);
Napi::Function WakerOpen(Napi::Env env);
Napi::Function WakerWake(Napi::Env env);
Napi::Function WakerEmpty(Napi::Env env);
Napi::Function WakerClose(Napi::Env env);
Napi::Function WakerSleep(Napi::Env env);
Napi::Function NetlinkExchange(Napi::Env env);
Napi::Function NetlinkListen(Napi::Env env);
Napi::Function NetlinkDrain(Napi::Env env);
Napi::Function NetlinkClose(Napi::Env env);

static Napi::Object Init(Napi::Env env, Napi::Object exports) {
  exports.Set("PacketSocket", PacketSocket(env));
  exports.Set("UdpSockets", UdpSockets(env));
  exports.Set("XskSocket", XskSocket(env));
  exports.Set("xskWakeTx", XskWakeTx(env));
  exports.Set("xskWakeRx", XskWakeRx(env));
  exports.Set("holdGroup", HoldGroup(env));
  exports.Set("Waiter", Waiter(env));
  exports.Set("Borrowed", Borrowed(env));
  exports.Set("wakerOpen", WakerOpen(env));
  exports.Set("wakerWake", WakerWake(env));
  exports.Set("wakerEmpty", WakerEmpty(env));
  exports.Set("wakerClose", WakerClose(env));
  exports.Set("wakerSleep", WakerSleep(env));
  exports.Set("netlinkExchange", NetlinkExchange(env));
  exports.Set("netlinkListen", NetlinkListen(env));
  exports.Set("netlinkDrain", NetlinkDrain(env));
  exports.Set("netlinkClose", NetlinkClose(env));
  return exports;
}

NODE_API_MODULE(wasm_roce, Init)
