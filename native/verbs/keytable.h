// Registered memory by its local keys: from the addresses of the program to those of the card.
#pragma once
#include <cstdint>
#include <unordered_map>

struct Mr;

/// The adapter's lock protects it.
class KeyTable {
 public:
  void Add(Mr* mr);
  void Remove(const Mr* mr);
  /// Returns the one with a region's number, or null. It looks at all of them.
  Mr* OfRegion(uint32_t region);
  /// Returns the place (assembly/host/place.ts) of an address of the program in the region with a local key. What is
  /// in no region has place 0, which the card refuses.
  uint64_t PlaceOf(uint64_t address, uint32_t lkey);

 private:
  std::unordered_map<uint32_t, Mr*> regions_;
  /// The region that was found last. Most requests use one.
  const Mr* last_ = nullptr;
};
