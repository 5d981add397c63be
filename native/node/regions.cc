// The object Regions: the regions of a card outside of its memory, and the card's imports to reach them.
#include <cerrno>
#include <unordered_map>

#include "arguments.h"
#include "core/regions.h"
#include "exports.h"
#include "pin.h"

namespace {

/// An import of the card in V8: four unsigned numbers, and whether it was possible. It is called for every access, so
/// it does without what C++ objects cost.
template <bool (Regions::*access)(uint32_t, uint32_t, uint32_t, uint32_t)>
napi_value Import(napi_env env, napi_callback_info info) {
  napi_value arguments[4];
  size_t count = 4;
  void* regions;
  uint32_t numbers[4] = {};
  napi_get_cb_info(env, info, &count, arguments, nullptr, &regions);
  for (size_t i = 0; i < 4; i++) napi_get_value_uint32(env, arguments[i], &numbers[i]);
  const bool isDone = (static_cast<Regions*>(regions)->*access)(numbers[0], numbers[1], numbers[2], numbers[3]);
  napi_value result;
  napi_create_uint32(env, isDone, &result);
  return result;
}

class RegionsObject : public Napi::ObjectWrap<RegionsObject> {
 public:
  using Self = RegionsObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "Regions",
                       {InstanceMethod<&Self::Imports>("imports"), InstanceMethod<&Self::Add>("add"),
                        InstanceMethod<&Self::SetWritable>("setWritable"), InstanceMethod<&Self::Move>("move"),
                        InstanceMethod<&Self::Remove>("remove"), InstanceMethod<&Self::Read>("read")});
  }
  // Regions(the card's memory)
  explicit RegionsObject(const Napi::CallbackInfo& info)
      : ObjectWrap(info),
        memory_(Napi::Persistent(BytesAt(info, 0))),
        regions_(Regions::Of(BytesAt(info, 0).Data(), BytesAt(info, 0).ByteLength())) {}
  ~RegionsObject() override {
    for (const auto& [region, owner] : owners_) regions_->Remove(region);
  }

 private:
  // imports(): { fetch, place, atomic }
  Napi::Value Imports(const Napi::CallbackInfo& info) {
    auto imports = Napi::Object::New(info.Env());
    Define(info, imports, "fetch", Import<&Regions::Fetch>);
    Define(info, imports, "place", Import<&Regions::Place>);
    Define(info, imports, "atomic", Import<&Regions::Atomic>);
    return imports;
  }

  void Define(const Napi::CallbackInfo& info, Napi::Object imports, const char* name, napi_callback callback) {
    napi_value function = nullptr;
    napi_create_function(info.Env(), name, NAPI_AUTO_LENGTH, callback, regions_.get(), &function);
    // the table lives as long as the function
    Napi::Object(info.Env(), function).Set("regions", info.This());
    imports.Set(name, function);
  }

  // add(bytes, is writable): the number of the region, 0 or -errno
  Napi::Value Add(const Napi::CallbackInfo& info) {
    auto bytes = BytesAt(info, 0);
    // V8 may make several objects of the card's memory
    if (regions_->Overlaps(bytes.Data(), bytes.ByteLength())) return Result(info, -EINVAL);
    Napi::Value owner = bytes.ArrayBuffer();
    // nothing takes the memory of a SharedArrayBuffer away
    if (owner.IsArrayBuffer()) owner = SecondOwner(owner.As<Napi::ArrayBuffer>());
    if (owner.IsEmpty()) return Result(info, -EOPNOTSUPP);
    const uint32_t region = regions_->Add(bytes.Data(), bytes.ByteLength(), BoolAt(info, 1));
    if (region != 0) owners_[region] = Napi::Persistent(owner.As<Napi::Object>());
    return Result(info, static_cast<int>(region));
  }

  // setWritable(region, is writable)
  void SetWritable(const Napi::CallbackInfo& info) {
    regions_->SetWritable(info[0].As<Napi::Number>(), BoolAt(info, 1));
  }

  // move(region, bytes): nobody else has their ArrayBuffer, so that it keeps its memory
  void Move(const Napi::CallbackInfo& info) {
    auto bytes = BytesAt(info, 1);
    const auto known = owners_.find(info[0].As<Napi::Number>());
    if (known == owners_.end()) return;
    regions_->Move(known->first, bytes.Data(), bytes.ByteLength());
    known->second = Napi::Persistent(bytes.As<Napi::Object>());
  }

  // remove(region)
  void Remove(const Napi::CallbackInfo& info) {
    const uint32_t region = info[0].As<Napi::Number>();
    if (owners_.erase(region) != 0) regions_->Remove(region);
  }

  // read(region, offset, into)
  Napi::Value Read(const Napi::CallbackInfo& info) {
    auto into = BytesAt(info, 2);
    const uint64_t region = info[0].As<Napi::Number>().Uint32Value();
    const uint8_t* from = regions_->At(region << 32 | info[1].As<Napi::Number>().Uint32Value(), into.ByteLength());
    // an empty array has no address
    if (from != nullptr && into.ByteLength() != 0) memcpy(into.Data(), from, into.ByteLength());
    return Napi::Boolean::New(info.Env(), from != nullptr);
  }

  Napi::Reference<Napi::Uint8Array> memory_;
  std::shared_ptr<Regions> regions_;
  /// The objects that keep the memory of the regions.
  std::unordered_map<uint32_t, Napi::ObjectReference> owners_;
};

}  // namespace

void DefineRegions(Napi::Object exports) { exports.Set("Regions", RegionsObject::Define(exports.Env())); }
