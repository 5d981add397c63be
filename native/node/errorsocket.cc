// The object ErrorSocket.
#include "core/errorsocket.h"
#include "arguments.h"
#include "exports.h"

namespace {

class ErrorSocketObject : public Napi::ObjectWrap<ErrorSocketObject> {
 public:
  using Self = ErrorSocketObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "ErrorSocket",
                       {InstanceMethod<&Self::Open>("open"), InstanceMethod<&Self::Port>("port"),
                        InstanceMethod<&Self::Fd>("fd"), InstanceMethod<&Self::Send>("send"),
                        InstanceMethod<&Self::Read>("read"), InstanceMethod<&Self::Close>("close")});
  }
  explicit ErrorSocketObject(const Napi::CallbackInfo& info) : ObjectWrap(info) {}

 private:
  // open(address of 4 or 16 bytes, port, scope id): 0 or -errno
  Napi::Value Open(const Napi::CallbackInfo& info) { return Result(info, socket_.Open(AddressOf(info))); }

  Napi::Value Port(const Napi::CallbackInfo& info) { return Result(info, socket_.Port()); }

  Napi::Value Fd(const Napi::CallbackInfo& info) { return Result(info, socket_.Fd()); }

  // send(frame): 0 or -errno
  Napi::Value Send(const Napi::CallbackInfo& info) {
    auto frame = BytesAt(info, 0);
    return Result(info, socket_.Send(frame.Data(), static_cast<uint32_t>(frame.ByteLength())));
  }

  // read(): the oldest error that has not been read, { errno, address }, or undefined
  Napi::Value Read(const Napi::CallbackInfo& info) {
    Napi::Env env = info.Env();
    IcmpError error;
    if (!socket_.Read(error)) return env.Undefined();
    auto address = Napi::Uint8Array::New(env, IpBytes(error.to));
    memcpy(address.Data(), IpOf(error.to), IpBytes(error.to));
    auto result = Napi::Object::New(env);
    result.Set("errno", -error.error);
    result.Set("address", address);
    return result;
  }

  void Close(const Napi::CallbackInfo&) { socket_.Close(); }

  ErrorSocket socket_;
};

}  // namespace

void DefineErrorSocket(Napi::Object exports) { exports.Set("ErrorSocket", ErrorSocketObject::Define(exports.Env())); }
