#include "regions.h"

#include <cstring>
#include <mutex>
#include <unordered_map>

#include "faultguard.h"

namespace {

/// Places are numbers of JavaScript, which are exact up to 2^53.
constexpr uint32_t kMaxRegions = 1 << 20;

/// The tables by the memory of their card.
struct Registry {
  std::mutex mutex;
  std::unordered_map<const uint8_t*, std::weak_ptr<Regions>> byMemory;
};

Registry& Tables() {
  // Never destroyed: threads may outlive main.
  static auto* registry = new Registry;
  return *registry;
}

/// Operations of AtomicOperation in assembly/host/place.ts.
enum Operation : uint32_t { kCompareSwap, kFetchAdd, kStore };

uint64_t Operate(uint64_t* at, uint32_t operation, uint64_t first, uint64_t second) {
  switch (operation) {
    case kCompareSwap:
      __atomic_compare_exchange_n(at, &first, second, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      return first;
    case kFetchAdd:
      return __atomic_fetch_add(at, first, __ATOMIC_SEQ_CST);
    default:
      return __atomic_exchange_n(at, first, __ATOMIC_SEQ_CST);
  }
}

/// @param pad two u64: the operands, of which the first becomes the value from before
void OperateAt(uint8_t* target, uint32_t operation, uint8_t* pad) {
  uint64_t values[2], value;
  memcpy(values, pad, sizeof values);
  if (reinterpret_cast<uintptr_t>(target) % sizeof value == 0) {
    value = Operate(reinterpret_cast<uint64_t*>(target), operation, values[0], values[1]);
  } else {
    uint64_t changed;
    memcpy(&value, target, sizeof value);
    changed = value;
    Operate(&changed, operation, values[0], values[1]);
    memcpy(target, &changed, sizeof changed);
  }
  memcpy(pad, &value, sizeof value);
}

}  // namespace

std::shared_ptr<Regions> Regions::Of(uint8_t* cardMemory, uint64_t bytes) {
  Registry& registry = Tables();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  for (auto at = registry.byMemory.begin(); at != registry.byMemory.end();)
    at = at->second.expired() ? registry.byMemory.erase(at) : std::next(at);
  std::weak_ptr<Regions>& known = registry.byMemory[cardMemory];
  std::shared_ptr<Regions> table = known.lock();
  if (table == nullptr) known = table = std::make_shared<Regions>(cardMemory, bytes);
  return table;
}

uint32_t Regions::Add(uint8_t* base, uint64_t bytes, bool isWritable) {
  if (!free_.empty()) {
    const uint32_t region = free_.back();
    free_.pop_back();
    regions_[region - 1] = {base, bytes, isWritable};
    return region;
  }
  if (regions_.size() == kMaxRegions) return 0;
  regions_.push_back({base, bytes, isWritable});
  return static_cast<uint32_t>(regions_.size());
}

void Regions::SetWritable(uint32_t region, bool isWritable) {
  if (Exists(region)) regions_[region - 1].isWritable = isWritable;
}

void Regions::Move(uint32_t region, uint8_t* base, uint64_t bytes) {
  if (Exists(region)) regions_[region - 1] = {base, bytes, regions_[region - 1].isWritable};
}

void Regions::Remove(uint32_t region) {
  if (!Exists(region)) return;
  regions_[region - 1] = {nullptr, 0, false};
  free_.push_back(region);
}

void Regions::Lose(uint32_t region) {
  if (!Exists(region)) return;
  regions_[region - 1].bytes = 0;
  lost_.push_back(region);
}

uint32_t Regions::TakeLost() {
  if (lost_.empty()) return 0;
  const uint32_t region = lost_.back();
  lost_.pop_back();
  return region;
}

template <typename Run>
bool Regions::Access(uint32_t region, Run run) {
  if (TryAccess(run)) return true;
  Lose(region);
  return false;
}

bool Regions::Fetch(uint32_t region, uint32_t offset, uint32_t to, uint32_t bytes) {
  const uint8_t* source = Find(region, offset, bytes, false);
  uint8_t* target = InCard(to, bytes);
  if (source == nullptr || target == nullptr) return false;
  return Access(region, [=] { memcpy(target, source, bytes); });
}

bool Regions::Place(uint32_t region, uint32_t offset, uint32_t from, uint32_t bytes) {
  uint8_t* target = Find(region, offset, bytes, true);
  const uint8_t* source = InCard(from, bytes);
  if (source == nullptr || target == nullptr) return false;
  return Access(region, [=] { memcpy(target, source, bytes); });
}

bool Regions::Atomic(uint32_t region, uint32_t offset, uint32_t operation, uint32_t operands) {
  uint8_t* target = Find(region, offset, sizeof(uint64_t), true);
  uint8_t* pad = InCard(operands, 2 * sizeof(uint64_t));
  if (target == nullptr || pad == nullptr || operation > kStore) return false;
  return Access(region, [=] { OperateAt(target, operation, pad); });
}
