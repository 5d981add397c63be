#include "sharedsocket.h"

#include <unordered_map>

namespace {

/// Transferred sockets by id.
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

/// Returns the result of a call with the socket, which is locked meanwhile; 0 without a socket.
template <typename Use>
auto WithSocket(const std::shared_ptr<TransferredSocket>& transferred, Use use) {
  decltype(use(*transferred->socket)) result = 0;
  if (!transferred) return result;
  const std::lock_guard<std::mutex> lock(transferred->mutex);
  if (transferred->socket != nullptr) result = use(*transferred->socket);
  return result;
}

}  // namespace

uint32_t SharedSocket::Transfer() {
  if (transferred_) return transferred_->id;
  transferred_ = std::make_shared<TransferredSocket>();
  transferred_->socket = this;
  Registry& registry = Sockets();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  while (registry.next == 0 || registry.byId.count(registry.next) != 0) registry.next++;
  transferred_->id = registry.next++;
  registry.byId[transferred_->id] = transferred_;
  return transferred_->id;
}

void SharedSocket::Revoke() {
  if (!transferred_) return;
  {
    const std::lock_guard<std::mutex> lock(transferred_->mutex);
    transferred_->socket = nullptr;
  }
  Registry& registry = Sockets();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.byId.erase(transferred_->id);
  transferred_.reset();
}

AdoptedSocket::AdoptedSocket(uint32_t id) {
  Registry& registry = Sockets();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.byId.find(id);
  if (found != registry.byId.end()) transferred_ = found->second;
}

int32_t AdoptedSocket::Send() {
  return WithSocket(transferred_, [](SharedSocket& socket) { return socket.SendFrames(); });
}

uint32_t AdoptedSocket::Receive() {
  return WithSocket(transferred_, [](SharedSocket& socket) { return socket.ReceiveFrames(); });
}

uint32_t AdoptedSocket::ReceiveLocal(bool hasOthers) {
  return WithSocket(transferred_, [hasOthers](SharedSocket& socket) { return socket.ReceiveLocalFrames(hasOthers); });
}
