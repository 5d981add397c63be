// The parts that the objects PacketSocket and UdpSockets have in common.
#pragma once
#include <napi.h>

#include "core/framesocket.h"
#include "arguments.h"

/// The card's memory, which is referenced as long as the socket moves frames from and to it.
class AttachedMemory {
 public:
  // attach(the card's memory, layout)
  void Attach(const Napi::CallbackInfo& info, FrameSocket& socket) {
    auto memory = BytesAt(info, 0);
    socket.Attach(memory.Data(), memory.ByteLength(), LayoutAt(info, 1));
    memory_ = Napi::Persistent(memory);
  }
  // close()
  void Close(FrameSocket& socket) {
    socket.Close();
    memory_.Reset();
  }

 private:
  Napi::Reference<Napi::Uint8Array> memory_;
};

/// Returns an object with the counters of a socket, by name.
inline Napi::Object CountersOf(Napi::Env env, const FrameCounters& counters) {
  auto object = Napi::Object::New(env);
  counters.ForEach([&](const char* name, uint64_t value) { object.Set(name, static_cast<double>(value)); });
  return object;
}
