// The object AdoptedSocket.
#include "core/sharedsocket.h"
#include "arguments.h"
#include "exports.h"

namespace {

class AdoptedSocketObject : public Napi::ObjectWrap<AdoptedSocketObject> {
 public:
  using Self = AdoptedSocketObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "AdoptedSocket",
                       {InstanceMethod<&Self::Send>("send"), InstanceMethod<&Self::Receive>("receive"),
                        InstanceMethod<&Self::ReceiveLocal>("receiveLocal")});
  }

  // new AdoptedSocket(id that transfer() returned)
  explicit AdoptedSocketObject(const Napi::CallbackInfo& info)
      : ObjectWrap(info), socket_(info[0].As<Napi::Number>().Uint32Value()) {}

 private:
  // send(), receive(), receiveLocal(hasOthers): as the socket's; 0 after it was closed
  Napi::Value Send(const Napi::CallbackInfo& info) { return Result(info, socket_.Send()); }
  Napi::Value Receive(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), socket_.Receive()); }
  Napi::Value ReceiveLocal(const Napi::CallbackInfo& info) {
    return Napi::Number::New(info.Env(), socket_.ReceiveLocal(BoolAt(info, 0)));
  }

  AdoptedSocket socket_;
};

}  // namespace

void DefineAdoptedSocket(Napi::Object exports) {
  exports.Set("AdoptedSocket", AdoptedSocketObject::Define(exports.Env()));
}
