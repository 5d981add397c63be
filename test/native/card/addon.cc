// The card as C for tests in Node: a function that makes an instance on a memory, with the exports that the card in V8
// has.
#include <napi.h>
#include <memory>
#include <tuple>
#include <utility>

#include "card/instance.h"
#include "card/trap.h"

namespace {

/// The imports of a card, as JavaScript gives them.
class ImportsInJavaScript final : public RegionAccess {
 public:
  explicit ImportsInJavaScript(Napi::Object imports) : imports_(Napi::Persistent(imports)) {}
  bool Fetch(uint32_t region, uint32_t offset, uint32_t to, uint32_t bytes) override {
    return Call("fetch", region, offset, to, bytes);
  }
  bool Place(uint32_t region, uint32_t offset, uint32_t from, uint32_t bytes) override {
    return Call("place", region, offset, from, bytes);
  }
  bool Atomic(uint32_t region, uint32_t offset, uint32_t operation, uint32_t operands) override {
    return Call("atomic", region, offset, operation, operands);
  }

 private:
  bool Call(const char* name, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const Napi::Env env = imports_.Env();
    const auto number = [env](uint32_t value) { return Napi::Number::New(env, value); };
    const auto result = imports_.Get(name).As<Napi::Function>().Call({number(a), number(b), number(c), number(d)});
    return !result.IsEmpty() && result.ToNumber().Uint32Value() != 0;
  }
  Napi::ObjectReference imports_;
};

/// An instance with its imports.
struct CardOfTest {
  CardOfTest(Napi::Uint8Array memory, Napi::Object imports)
      : regions(imports), card(memory.Data(), memory.ByteLength(), regions) {}
  ImportsInJavaScript regions;
  CardInstance card;
};

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
  auto* instance = &static_cast<CardOfTest*>(info.Data())->card;
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

// instantiate(memory as Uint8Array, { fetch, place, atomic }): an object with the exports
Napi::Value Instantiate(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  auto memory = info[0].As<Napi::Uint8Array>();
  auto* instance = new CardOfTest(memory, info[1].As<Napi::Object>());
  auto exports = Napi::Object::New(env);
  // the memory lives as long as the instance
  exports.Set("bytes", memory);
  exports.AddFinalizer([](Napi::Env, CardOfTest* ended) { delete ended; }, instance);
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
