// Memory that a card reaches although it is outside of the card's own: the regions that a program has registered. The
// card names them by number and offset (assembly/host/place.ts); every access is checked here again.
//
// Threads: one table for each card of the process, whichever thread runs the card and whichever moves its frames. Turns
// read it, and nobody may change it during a turn: the TurnLock keeps them apart.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

/// The accesses that the card imports. Offsets `to`, `from` and `operands` are in the card's memory. The
/// functions return false, and do nothing, if an access is not wholly inside a region, or may not write it.
class RegionAccess {
 public:
  virtual bool Fetch(uint32_t region, uint32_t offset, uint32_t to, uint32_t bytes) = 0;
  virtual bool Place(uint32_t region, uint32_t offset, uint32_t from, uint32_t bytes) = 0;
  /// @param operation of AtomicOperation in assembly/host/place.ts
  /// @param operands two u64, of which the first becomes the value from before
  virtual bool Atomic(uint32_t region, uint32_t offset, uint32_t operation, uint32_t operands) = 0;

 protected:
  ~RegionAccess() = default;
};

class Regions final : public RegionAccess {
 public:
  /// Returns the table of a card, by its memory, in any thread. It lives as long as somebody has it, and the memory
  /// must live as long.
  static std::shared_ptr<Regions> Of(uint8_t* cardMemory, uint64_t bytes);

  /// Returns whether memory is the card's own, which is no region.
  bool Overlaps(const uint8_t* base, uint64_t bytes) const { return base < card_ + cardBytes_ && card_ < base + bytes; }
  /// @param base stays where it is until Remove
  /// @returns the number of the region; 0 if there are too many
  uint32_t Add(uint8_t* base, uint64_t bytes, bool isWritable);
  /// As Remove, does nothing if there is none.
  void SetWritable(uint32_t region, bool isWritable);
  /// The region has other memory from now on.
  void Move(uint32_t region, uint8_t* base, uint64_t bytes);
  void Remove(uint32_t region);
  /// Returns the address of `bytes` at a place (region << 32 | offset), or null if they are not all in its region.
  const uint8_t* At(uint64_t place, uint64_t bytes) const {
    return Find(static_cast<uint32_t>(place >> 32), place & UINT32_MAX, bytes, false);
  }

  /// Memory of a region has gone (faultguard.h): it has no bytes from now on.
  void Lose(uint32_t region);
  /// Returns a region that was lost, once; 0 = none.
  uint32_t TakeLost();

  bool Fetch(uint32_t region, uint32_t offset, uint32_t to, uint32_t bytes) override;
  bool Place(uint32_t region, uint32_t offset, uint32_t from, uint32_t bytes) override;
  bool Atomic(uint32_t region, uint32_t offset, uint32_t operation, uint32_t operands) override;

  Regions(uint8_t* cardMemory, uint64_t bytes) : card_(cardMemory), cardBytes_(bytes) {}
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

 private:
  struct Region {
    uint8_t* base;
    uint64_t bytes;
    bool isWritable;
  };

  bool Exists(uint32_t region) const {
    return region != 0 && region <= regions_.size() && regions_[region - 1].base != nullptr;
  }
  uint8_t* Find(uint32_t region, uint64_t offset, uint64_t bytes, bool writes) const {
    if (!Exists(region)) return nullptr;
    const Region& found = regions_[region - 1];
    const bool isInside = offset <= found.bytes && bytes <= found.bytes - offset;
    return isInside && (found.isWritable || !writes) ? found.base + offset : nullptr;
  }
  uint8_t* InCard(uint64_t offset, uint64_t bytes) const {
    return offset <= cardBytes_ && bytes <= cardBytes_ - offset ? card_ + offset : nullptr;
  }

  /// Accesses memory of a region. @returns false if it is not there any more
  template <typename Run>
  bool Access(uint32_t region, Run run);

  uint8_t* card_;
  uint64_t cardBytes_;
  /// By number less one. A region that was removed has no bytes.
  std::vector<Region> regions_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> lost_;
};
