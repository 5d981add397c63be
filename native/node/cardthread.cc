// The object CardThread: the card as C in a thread of its own.
#include "arguments.h"
#include "card/instance.h"
#include "core/regions.h"
#include "core/turnthread.h"
#include "exports.h"

namespace {

class CardThreadObject : public Napi::ObjectWrap<CardThreadObject> {
 public:
  using Self = CardThreadObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "CardThread", {InstanceMethod<&Self::Start>("start"), InstanceMethod<&Self::Join>("join")});
  }

  // new CardThread(plan)
  explicit CardThreadObject(const Napi::CallbackInfo& info)
      : ObjectWrap(info),
        plan_(Napi::Persistent(info[0].As<Napi::Object>())),
        regions_(Regions::Of(Memory().Data(), Memory().ByteLength())),
        card_(Memory().Data(), Memory().ByteLength(), *regions_),
        thread_(card_, Plan()) {}
  ~CardThreadObject() override { Stop(); }

 private:
  template <typename Value>
  Value Member(const char* name) const {
    return plan_.Value().Get(name).As<Value>();
  }

  Napi::Uint8Array Memory() const { return Member<Napi::Uint8Array>("memory"); }

  TurnThread::Plan Plan() const {
    const auto number = [this](const char* name) { return Member<Napi::Number>(name); };
    const double spin = number("spinNs");
    bool isExact;
    TurnThread::Plan plan{};
    plan.memory = Memory().Data();
    plan.tx = LayoutOf(Member<Napi::Uint32Array>("layout")).tx;
    plan.words = Member<Napi::Int32Array>("words").Data();
    plan.socket = number("socket").Uint32Value();
    plan.socketFd = number("socketFd");
    plan.gsoRefused = Member<Napi::Int32Array>("gsoRefused").Data();
    plan.wakeFd = number("workerEventfd");
    plan.noticeFd = number("appEventfd");
    plan.spin = spin < static_cast<double>(Spin::kForever) ? static_cast<int64_t>(spin) : Spin::kForever;
    plan.clockOrigin = Member<Napi::BigInt>("clockOrigin").Int64Value(&isExact);
    return plan;
  }

  // start(): 0 or -errno
  Napi::Value Start(const Napi::CallbackInfo& info) {
    const int result = thread_.Start();
    // the environment may end while the thread runs, and with it end the file descriptors
    if (result == 0) napi_add_env_cleanup_hook(info.Env(), End, this);
    return Result(info, result);
  }

  void Join(const Napi::CallbackInfo&) { Stop(); }

  void Stop() {
    thread_.Join();
    napi_remove_env_cleanup_hook(Env(), End, this);
  }

  // JavaScript may have been ended anywhere
  static void End(void* self) { static_cast<Self*>(self)->thread_.Abandon(); }

  /// With it live the memory and the words that the thread uses.
  Napi::ObjectReference plan_;
  std::shared_ptr<Regions> regions_;
  CardInstance card_;
  TurnThread thread_;
};

}  // namespace

void DefineCardThread(Napi::Object exports) { exports.Set("CardThread", CardThreadObject::Define(exports.Env())); }
