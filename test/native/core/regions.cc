#include "core/regions.h"

#include <doctest/doctest.h>
#include <cstring>
#include <thread>
#include <vector>

#include "card.h"

namespace {

constexpr uint32_t kCardBytes = 4096;

/// A card's memory with its table, and a region of the heap, so that the sanitizer knows its end.
struct Table {
  explicit Table(size_t bytes = 100, bool isWritable = true) : memory(bytes) {
    for (size_t i = 0; i < bytes; i++) memory[i] = static_cast<uint8_t>(i);
    region = regions->Add(memory.data(), bytes, isWritable);
  }
  uint64_t& Operand(uint32_t i) { return *reinterpret_cast<uint64_t*>(card.data() + 64 + 8 * i); }

  std::vector<uint8_t> card = std::vector<uint8_t>(kCardBytes);
  std::shared_ptr<Regions> regions = Regions::Of(card.data(), card.size());
  std::vector<uint8_t> memory;
  uint32_t region;
};

}  // namespace

TEST_CASE("an access of a region is done if all of it is inside, and refused otherwise") {
  Table t;
  const struct {
    uint32_t offset, bytes;
    bool isInside;
  } cases[] = {{0, 100, true},  {0, 101, false},       {99, 1, true},           {100, 0, true},
               {100, 1, false}, {UINT32_MAX, 1, false}, {1, UINT32_MAX, false}, {50, 51, false}};
  for (const auto& [offset, bytes, isInside] : cases) {
    CAPTURE(offset);
    CAPTURE(bytes);
    CHECK(t.regions->Fetch(t.region, offset, 256, bytes) == isInside);
    CHECK(t.regions->Place(t.region, offset, 256, bytes) == isInside);
    CHECK((t.regions->At(static_cast<uint64_t>(t.region) << 32 | offset, bytes) != nullptr) == isInside);
  }
  for (const uint32_t unknown : {0u, t.region + 1, UINT32_MAX}) CHECK_FALSE(t.regions->Fetch(unknown, 0, 256, 1));
}

TEST_CASE("an access of the card's own memory is refused if it is not all inside") {
  Table t;
  CHECK(t.regions->Fetch(t.region, 0, kCardBytes - 100, 100));
  CHECK_FALSE(t.regions->Fetch(t.region, 0, kCardBytes - 99, 100));
  CHECK_FALSE(t.regions->Place(t.region, 0, UINT32_MAX, 100));
  CHECK(t.regions->Atomic(t.region, 0, 0, kCardBytes - 16));
  CHECK_FALSE(t.regions->Atomic(t.region, 0, 0, kCardBytes - 15));
}

TEST_CASE("fetch and place copy the bytes") {
  Table t;
  REQUIRE(t.regions->Fetch(t.region, 10, 256, 50));
  CHECK(memcmp(t.card.data() + 256, t.memory.data() + 10, 50) == 0);
  t.card[300] = 0xee;
  REQUIRE(t.regions->Place(t.region, 3, 300, 1));
  CHECK(t.memory[3] == 0xee);
}

TEST_CASE("a region that may not be written is only fetched, until that changes") {
  Table t(100, false);
  CHECK(t.regions->Fetch(t.region, 0, 256, 8));
  CHECK_FALSE(t.regions->Place(t.region, 0, 256, 8));
  CHECK_FALSE(t.regions->Atomic(t.region, 0, 2, 64));
  t.regions->SetWritable(t.region, true);
  CHECK(t.regions->Place(t.region, 0, 256, 8));
}

TEST_CASE("atomic operations return the value from before, at any alignment") {
  Table t;
  const uintptr_t base = reinterpret_cast<uintptr_t>(t.memory.data());
  const auto aligned = static_cast<uint32_t>(-base & 7);
  for (const uint32_t offset : {aligned, aligned + 3}) {
    CAPTURE(offset);
    uint64_t value = 40;
    const auto now = [&] {
      memcpy(&value, t.memory.data() + offset, sizeof value);
      return value;
    };
    memcpy(t.memory.data() + offset, &value, sizeof value);
    t.Operand(0) = 2;
    REQUIRE(t.regions->Atomic(t.region, offset, 1, 64));
    CHECK(t.Operand(0) == 40);
    CHECK(now() == 42);
    t.Operand(0) = 41, t.Operand(1) = 7;
    REQUIRE(t.regions->Atomic(t.region, offset, 0, 64));
    CHECK(t.Operand(0) == 42);
    CHECK(now() == 42);
    t.Operand(0) = 42;
    REQUIRE(t.regions->Atomic(t.region, offset, 0, 64));
    CHECK(now() == 7);
    t.Operand(0) = 9;
    REQUIRE(t.regions->Atomic(t.region, offset, 2, 64));
    CHECK(t.Operand(0) == 7);
    CHECK(now() == 9);
  }
  CHECK_FALSE(t.regions->Atomic(t.region, aligned, 3, 64));
  CHECK_FALSE(t.regions->Atomic(t.region, 93, 1, 64));
}

TEST_CASE("aligned atomic operations of two cards on the same memory lose nothing") {
  alignas(8) uint64_t word = 0;
  const auto add = [&word] {
    Table t;
    const uint32_t region = t.regions->Add(reinterpret_cast<uint8_t*>(&word), sizeof word, true);
    for (int i = 0; i < 10'000; i++) {
      t.Operand(0) = 1;
      t.regions->Atomic(region, 0, 1, 64);
    }
  };
  std::thread other(add);
  add();
  other.join();
  CHECK(word == 20'000);
}

TEST_CASE("a region that was removed is gone, and its number is used again") {
  Table t;
  t.regions->Remove(t.region);
  CHECK_FALSE(t.regions->Fetch(t.region, 0, 256, 0));
  t.regions->Remove(t.region);
  const uint32_t first = t.regions->Add(t.memory.data(), 10, true), second = t.regions->Add(t.memory.data(), 20, true);
  CHECK(first == t.region);
  CHECK(second != first);
  CHECK(t.regions->At(static_cast<uint64_t>(first) << 32, 11) == nullptr);
}

TEST_CASE("a region that moves has other memory under its number, and keeps its right") {
  Table t;
  std::vector<uint8_t> next(20, 7);
  t.regions->SetWritable(t.region, false);
  t.regions->Move(t.region, next.data(), next.size());
  CHECK(t.regions->Fetch(t.region, 12, 256, 8));
  CHECK(t.card[256] == 7);
  CHECK_FALSE(t.regions->Fetch(t.region, 13, 256, 8));
  CHECK_FALSE(t.regions->Place(t.region, 0, 256, 8));
  t.regions->Remove(t.region);
  t.regions->Move(t.region, next.data(), next.size());
  CHECK_FALSE(t.regions->Fetch(t.region, 0, 256, 8));
}

TEST_CASE("a card has at most 2^20 regions") {
  Table t;
  for (uint32_t i = 1; i < 1u << 20; i++) REQUIRE(t.regions->Add(t.memory.data(), 1, true) != 0);
  CHECK(t.regions->Add(t.memory.data(), 1, true) == 0);
  t.regions->Remove(77);
  CHECK(t.regions->Add(t.memory.data(), 1, true) == 77);
}

TEST_CASE("all who name the memory of a card share its table, which ends with the last of them") {
  Table t;
  CHECK(Regions::Of(t.card.data(), t.card.size()).get() == t.regions.get());
  std::vector<uint8_t> otherCard(64);
  CHECK(Regions::Of(otherCard.data(), otherCard.size()).get() != t.regions.get());
  t.regions.reset();
  CHECK_FALSE(Regions::Of(t.card.data(), t.card.size())->Fetch(t.region, 0, 256, 1));
}

TEST_CASE("memory overlaps the card's if they have a byte in common") {
  Table t;
  CHECK(t.regions->Overlaps(t.card.data() + kCardBytes - 1, 5));
  CHECK_FALSE(t.regions->Overlaps(t.memory.data(), t.memory.size()));
}

TEST_CASE("a link fetches an ICRC span from a region, and leaves a frame whose region is gone") {
  Card card;
  const auto regions = Regions::Of(card.memory.data(), card.memory.size());
  std::vector<uint8_t> memory(1000, 0x5a);
  const uint32_t region = regions->Add(memory.data(), memory.size(), false);
  const auto sent = [&](uint64_t place) {
    std::vector<uint8_t> frame(60 + 256 + 4);
    memcpy(frame.data() + 60, &place, sizeof place);
    card.Send(frame, 256u << kTxIcrcShift | kTxFetchSpan);
    card.frames.CompleteIcrcs();
    const uint8_t* at = card.memory.data() + card.frames.tx[card.frames.tx.Producer() - 1].addr + 60;
    return std::vector<uint8_t>(at, at + 256);
  };
  const uint64_t place = static_cast<uint64_t>(region) << 32;
  CHECK(sent(place + 744) == std::vector<uint8_t>(256, 0x5a));
  CHECK(sent(place + 745)[8] == 0);
  regions->Remove(region);
  CHECK(sent(place)[8] == 0);
}
