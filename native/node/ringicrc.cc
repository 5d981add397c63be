// The link's part of the ICRC for frames that JavaScript moves: those of the xdp link.
#include "core/frames.h"
#include "core/headers.h"
#include "arguments.h"
#include "exports.h"

namespace {

class RingIcrcObject : public Napi::ObjectWrap<RingIcrcObject> {
 public:
  using Self = RingIcrcObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "RingIcrc",
                       {InstanceMethod<&Self::Complete>("complete"), InstanceMethod<&Self::Fold>("fold")});
  }
  // RingIcrc(the card's memory, layout)
  explicit RingIcrcObject(const Napi::CallbackInfo& info)
      : ObjectWrap(info), memory_(Napi::Persistent(BytesAt(info, 0))) {
    auto memory = BytesAt(info, 0);
    frames_.Attach(memory.Data(), memory.ByteLength(), LayoutAt(info, 1));
  }

 private:
  // complete(): of all frames in the transmit ring
  void Complete(const Napi::CallbackInfo&) { frames_.CompleteIcrcs(); }

  // fold(cursor): of the frames in the receive ring from there on
  void Fold(const Napi::CallbackInfo& info) {
    Ring& ring = frames_.rx;
    for (uint32_t at = info[0].As<Napi::Number>(), end = ring.Producer(); at != end; at++) {
      Descriptor& to = ring[at];
      uint8_t* frame = frames_.At(to.addr, to.len);
      Datagram datagram;
      if (frame == nullptr || !ParseUdp(frame, to.len, datagram)) continue;
      frames_.FoldIcrcs(datagram.payload, datagram.payloadBytes, 0, to);
    }
  }

  Napi::Reference<Napi::Uint8Array> memory_;
  Frames frames_;
};

}  // namespace

void DefineRingIcrc(Napi::Object exports) { exports.Set("RingIcrc", RingIcrcObject::Define(exports.Env())); }
