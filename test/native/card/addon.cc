// The card as C for tests in Node: a function that makes an instance on a memory, with the exports that the card in V8
// has.
#include <napi.h>
#include <memory>
#include <tuple>
#include <utility>

#include "card/instance.h"
#include "card/trap.h"

namespace {

template <typename Number>
Number ArgumentAt(const Napi::CallbackInfo& info, size_t i) {
  // a missing argument is zero, as in WebAssembly
  const Napi::Value value = info[i];
  if (!value.IsNumber()) return 0;
  if constexpr (std::is_same_v<Number, double>) return value.As<Napi::Number>().DoubleValue();
  else return value.As<Napi::Number>().Uint32Value();
}

template <typename Result, typename... Arguments, size_t... i>
Napi::Value Call(const Napi::CallbackInfo& info, Result (*function)(w2c_card*, Arguments...),
                 std::index_sequence<i...>) {
  auto* instance = static_cast<CardInstance*>(info.Data());
  const std::tuple<Arguments...> arguments{ArgumentAt<Arguments>(info, i)...};
  double result = 0;
  auto run = [&] {
    if constexpr (std::is_void_v<Result>) function(instance->Card(), std::get<i>(arguments)...);
    else if constexpr (std::is_same_v<Result, double>) result = function(instance->Card(), std::get<i>(arguments)...);
    // JavaScript sees the results of WebAssembly with a sign
    else result = static_cast<int32_t>(function(instance->Card(), std::get<i>(arguments)...));
  };
  if (const int trap = CatchTrap(run)) {
    Napi::Error::New(info.Env(), TrapText(trap)).ThrowAsJavaScriptException();
    return {};
  }
  return std::is_void_v<Result> ? info.Env().Undefined() : Napi::Number::New(info.Env(), result);
}

template <typename Result, typename... Arguments>
Napi::Value CallWith(const Napi::CallbackInfo& info, Result (*function)(w2c_card*, Arguments...)) {
  return Call(info, function, std::index_sequence_for<Arguments...>{});
}

template <auto function>
Napi::Value Export(const Napi::CallbackInfo& info) {
  return CallWith(info, function);
}

// instantiate(memory as Uint8Array): an object with the exports
Napi::Value Instantiate(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  auto memory = info[0].As<Napi::Uint8Array>();
  auto* instance = new CardInstance(memory.Data(), memory.ByteLength());
  auto exports = Napi::Object::New(env);
  // the memory lives as long as the instance
  exports.Set("bytes", memory);
  exports.AddFinalizer([](Napi::Env, CardInstance* ended) { delete ended; }, instance);
#define CARD_FUNCTION(name, ...) \
  exports.Set(#name, Napi::Function::New<Export<&w2c_card_##name>>(env, #name, instance));
#include "exports.inc"
#undef CARD_FUNCTION
  return exports;
}

Napi::Object Init(Napi::Env env, Napi::Object exports) {
  exports.Set("instantiate", Napi::Function::New<Instantiate>(env, "instantiate"));
  return exports;
}

}  // namespace

NODE_API_MODULE(wasm_roce_card, Init)
