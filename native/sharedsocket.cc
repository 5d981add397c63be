#include "sharedsocket.h"

#include <napi.h>
#include <unordered_map>

namespace {

/// Transferred sockets by id: the only state that the environments of a process share.
struct Registry {
  std::mutex mutex;
  std::unordered_map<uint32_t, std::shared_ptr<TransferredSocket>> byId;
  uint32_t next = 1;
};

Registry& Sockets() {
  // Never destroyed: threads may outlive main.
  static auto* registry = new Registry;
  return *registry;
}

class AdoptedSocketObject : public Napi::ObjectWrap<AdoptedSocketObject> {
 public:
  using Self = AdoptedSocketObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "AdoptedSocket",
                       {InstanceMethod<&Self::Send>("send"), InstanceMethod<&Self::Receive>("receive"),
                        InstanceMethod<&Self::ReceiveLocal>("receiveLocal")});
  }

  // new AdoptedSocket(id that transfer() returned)
  explicit AdoptedSocketObject(const Napi::CallbackInfo& info) : ObjectWrap(info) {
    Registry& registry = Sockets();
    std::lock_guard<std::mutex> lock(registry.mutex);
    auto found = registry.byId.find(info[0].As<Napi::Number>().Uint32Value());
    if (found != registry.byId.end()) transferred_ = found->second;
  }

 private:
  // send(), receive(), receiveLocal(hasOthers): as the socket's; 0 after it was closed
  Napi::Value Send(const Napi::CallbackInfo& info) {
    return Move(info, [](SharedSocket& socket) { return socket.SendFrames(); });
  }
  Napi::Value Receive(const Napi::CallbackInfo& info) {
    return Move(info, [](SharedSocket& socket) { return socket.ReceiveFrames(); });
  }
  Napi::Value ReceiveLocal(const Napi::CallbackInfo& info) {
    const bool hasOthers = info[0].As<Napi::Boolean>();
    return Move(info, [hasOthers](SharedSocket& socket) { return socket.ReceiveLocal(hasOthers); });
  }

  template <typename Frames>
  Napi::Value Move(const Napi::CallbackInfo& info, Frames frames) {
    decltype(frames(*transferred_->socket)) moved = 0;
    if (transferred_) {
      std::lock_guard<std::mutex> lock(transferred_->mutex);
      if (transferred_->socket != nullptr) moved = frames(*transferred_->socket);
    }
    return Napi::Number::New(info.Env(), moved);
  }

  std::shared_ptr<TransferredSocket> transferred_;
};

}  // namespace

uint32_t SharedSocket::Transfer() {
  if (transferred_) return transferred_->id;
  transferred_ = std::make_shared<TransferredSocket>();
  transferred_->socket = this;
  Registry& registry = Sockets();
  std::lock_guard<std::mutex> lock(registry.mutex);
  while (registry.next == 0 || registry.byId.count(registry.next) != 0) registry.next++;
  transferred_->id = registry.next++;
  registry.byId[transferred_->id] = transferred_;
  return transferred_->id;
}

void SharedSocket::Revoke() {
  if (!transferred_) return;
  {
    std::lock_guard<std::mutex> lock(transferred_->mutex);
    transferred_->socket = nullptr;
  }
  Registry& registry = Sockets();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.byId.erase(transferred_->id);
  transferred_.reset();
}

Napi::Function AdoptedSocket(Napi::Env env) { return AdoptedSocketObject::Define(env); }
