// The CRC methods of this processor, for tests and benchmarks.
#include "core/crc.h"
#include "arguments.h"
#include "exports.h"

namespace {

// crcMethods(): names of the CRC methods of this processor, the fastest first
Napi::Value MethodNames(const Napi::CallbackInfo& info) {
  auto names = Napi::Array::New(info.Env());
  for (const CrcMethod& method : CrcMethods()) names.Set(names.Length(), method.name);
  return names;
}

// crc(method, register, bytes, a multiple of 256, copy): the register after them. Copies them, if there is a `copy`.
Napi::Value CrcBy(const Napi::CallbackInfo& info) {
  const std::string name = TextAt(info, 0);
  auto bytes = BytesAt(info, 2);
  const auto length = static_cast<uint32_t>(bytes.ByteLength());
  const uint32_t start = info[1].As<Napi::Number>();
  uint8_t* copy = info[3].IsUndefined() ? nullptr : BytesAt(info, 3).Data();
  uint32_t result = 0;
  for (const CrcMethod& method : CrcMethods())
    if (name == method.name) result = method.Continue(start, bytes.Data(), length, copy);
  return Napi::Number::New(info.Env(), result);
}

}  // namespace

void DefineCrc(Napi::Object exports) {
  exports.Set("crcMethods", Napi::Function::New<MethodNames>(exports.Env(), "crcMethods"));
  exports.Set("crc", Napi::Function::New<CrcBy>(exports.Env(), "crc"));
}
