// The addon's exports. The addon moves frames between the rings in a card's memory and the network, and computes the
// part of their ICRC that links take over. It knows frames, IP and UDP, and nothing of RoCE above them. src/native.ts
// declares and documents each export.
//
// Words: a frame is an Ethernet frame. A GSO burst is consecutive frames of the transmit ring that the kernel takes as
// one super-packet; a super-packet received by GRO stays one descriptor of the receive ring. To transfer a socket is to
// let a second thread, which adopts it, move its frames.
//
// Invariants:
// - A function makes one system call or one batch of them, and returns a count, a file descriptor or -errno.
// - src/ checks the arguments and words the errors. The addon checks the address and length of each descriptor.
// - Signal handlers and the end of the process use nothing but the last frames (lastframes.cc), and no lock.
// - Only Poller calls into JavaScript, and only from the event loop. Only eventfdWait, netlinkExchange and notify
//   sleep.
//
// Threads: each Node environment (the main thread, a worker thread) loads its own instance, whose objects and file
// descriptors (fds.h) belong to it and end with it. Environments share two things: the registry of transferred sockets
// (sharedsocket.cc), behind mutexes, and the last frames (lastframes.cc), which signal handlers read without a lock. A
// card's rings have one producer and one consumer each, which may be two threads.
#include <napi.h>

#include "fds.h"
#include "lastframes.h"
#include "crc.h"

Napi::Function PacketSocket(Napi::Env env);
Napi::Function UdpSockets(Napi::Env env);
Napi::Function ErrorSocket(Napi::Env env);
Napi::Function XskSocket(Napi::Env env);
Napi::Function RingIcrc(Napi::Env env);
Napi::Function XskWakeTx(Napi::Env env);
Napi::Function XskWakeRx(Napi::Env env);
Napi::Function JoinGroup(Napi::Env env);
Napi::Function Poller(Napi::Env env);
Napi::Function AdoptedSocket(Napi::Env env);
Napi::Function FdDup(Napi::Env env);
Napi::Function FdClose(Napi::Env env);
Napi::Function FdRelease(Napi::Env env);
Napi::Function EventfdOpen(Napi::Env env);
Napi::Function EventfdSignal(Napi::Env env);
Napi::Function EventfdClear(Napi::Env env);
Napi::Function EventfdWait(Napi::Env env);
Napi::Function NameLockTake(Napi::Env env);
Napi::Function NameLockIsTaken(Napi::Env env);
Napi::Function NetlinkExchange(Napi::Env env);
Napi::Function NetlinkListen(Napi::Env env);
Napi::Function NetlinkReceive(Napi::Env env);
Napi::Function LibbpfLoader(Napi::Env env);
Napi::Function Notify(Napi::Env env);
Napi::Function ReleasePages(Napi::Env env);
Napi::Function TapOpen(Napi::Env env);
Napi::Function TapRead(Napi::Env env);
Napi::Function ClockOffset(Napi::Env env);
Napi::Object UnixSockets(Napi::Env env);
Napi::Object PortGroups(Napi::Env env);
Napi::Function LastFrameKeep(Napi::Env env);
Napi::Function LastFrameSignals(Napi::Env env);
Napi::Function LastFrameDrop(Napi::Env env);
Napi::Function LastFrameSocket(Napi::Env env);

// crcMethods(): names of the CRC methods of this processor, the fastest first
static Napi::Value MethodNames(const Napi::CallbackInfo& info) {
  auto names = Napi::Array::New(info.Env());
  for (const CrcMethod& method : CrcMethods()) names.Set(names.Length(), method.name);
  return names;
}

// crc(method, register, bytes, a multiple of 256, copy): the register after them. Copies them, if there is a `copy`.
static Napi::Value CrcBy(const Napi::CallbackInfo& info) {
  const std::string name = info[0].As<Napi::String>();
  auto bytes = info[2].As<Napi::Uint8Array>();
  const auto length = static_cast<uint32_t>(bytes.ByteLength());
  const uint32_t start = info[1].As<Napi::Number>();
  uint8_t* copy = info[3].IsUndefined() ? nullptr : info[3].As<Napi::Uint8Array>().Data();
  uint32_t result = 0;
  for (const CrcMethod& method : CrcMethods())
    if (name == method.name)
      result = method.Continue(start, bytes.Data(), length, copy);
  return Napi::Number::New(info.Env(), result);
}

static Napi::Object Init(Napi::Env env, Napi::Object exports) {
  InitFds(env);
  InitLastFrames(env);
  exports.Set("crcMethods", Napi::Function::New<MethodNames>(env));
  exports.Set("crc", Napi::Function::New<CrcBy>(env));
  exports.Set("PacketSocket", PacketSocket(env));
  exports.Set("UdpSockets", UdpSockets(env));
  exports.Set("ErrorSocket", ErrorSocket(env));
  exports.Set("XskSocket", XskSocket(env));
  exports.Set("RingIcrc", RingIcrc(env));
  exports.Set("xskWakeTx", XskWakeTx(env));
  exports.Set("xskWakeRx", XskWakeRx(env));
  exports.Set("joinGroup", JoinGroup(env));
  exports.Set("Poller", Poller(env));
  exports.Set("AdoptedSocket", AdoptedSocket(env));
  exports.Set("dupFd", FdDup(env));
  exports.Set("closeFd", FdClose(env));
  exports.Set("releaseFd", FdRelease(env));
  exports.Set("eventfdOpen", EventfdOpen(env));
  exports.Set("eventfdSignal", EventfdSignal(env));
  exports.Set("eventfdClear", EventfdClear(env));
  exports.Set("eventfdWait", EventfdWait(env));
  exports.Set("nameLockTake", NameLockTake(env));
  exports.Set("nameLockIsTaken", NameLockIsTaken(env));
  exports.Set("netlinkExchange", NetlinkExchange(env));
  exports.Set("netlinkListen", NetlinkListen(env));
  exports.Set("netlinkReceive", NetlinkReceive(env));
  exports.Set("libbpf", LibbpfLoader(env));
  exports.Set("notify", Notify(env));
  exports.Set("releasePages", ReleasePages(env));
  exports.Set("tapOpen", TapOpen(env));
  exports.Set("tapRead", TapRead(env));
  exports.Set("clockOffset", ClockOffset(env));
  exports.Set("unix", UnixSockets(env));
  exports.Set("ports", PortGroups(env));
  exports.Set("lastFrameKeep", LastFrameKeep(env));
  exports.Set("lastFrameSignals", LastFrameSignals(env));
  exports.Set("lastFrameDrop", LastFrameDrop(env));
  exports.Set("lastFrameSocket", LastFrameSocket(env));
  return exports;
}

NODE_API_MODULE(wasm_roce, Init)
