#include "keytable.h"

#include "objects.h"

void KeyTable::Add(Mr* mr) { regions_[mr->lkey] = mr; }

void KeyTable::Remove(const Mr* mr) {
  regions_.erase(mr->lkey);
  if (last_ == mr) last_ = nullptr;
}

Mr* KeyTable::OfRegion(uint32_t region) {
  for (const auto& [key, mr] : regions_)
    if (mr->region == region) return mr;
  return nullptr;
}

uint64_t KeyTable::PlaceOf(uint64_t address, uint32_t lkey) {
  if (last_ == nullptr || last_->lkey != lkey) {
    const auto found = regions_.find(lkey);
    if (found == regions_.end()) return 0;
    last_ = found->second;
  }
  // an address in front of the region is far behind it here
  const uint64_t offset = address - last_->iova;
  return offset > last_->length ? 0 : uint64_t{last_->region} << 32 | offset;
}
