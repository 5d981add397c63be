#include "core/frames.h"

#include <doctest/doctest.h>
#include <algorithm>
#include <string>

#include "card.h"
#include "core/icrc.h"

TEST_CASE("a ring counts on when its cursors overflow") {
  Card card(4);
  Ring& ring = card.frames.rx;
  ring.SetProducer(UINT32_MAX);
  ring.SetConsumer(UINT32_MAX - 2);
  CHECK(ring.Filled() == 2);
  CHECK(ring.Free() == 2);
  ring.SetProducer(1);
  CHECK(ring.Filled() == 4);
  CHECK(ring.Free() == 0);
}

TEST_CASE("slots that are used again are those that were used last") {
  Card card(8);
  Ring& ring = card.frames.rx;
  ring.SetProducer(3);
  ring.SetConsumer(3);
  const uint64_t last = ring[2].addr, next = ring[3].addr;
  ring.ReuseSlots(2);
  CHECK(ring[3].addr == last);
  CHECK(ring[2].addr == next);
}

TEST_CASE("no address outside of the memory is given, whatever a descriptor says") {
  Card card;
  const uint64_t bytes = card.memory.size();
  CHECK(card.frames.At(0, bytes) == card.memory.data());
  CHECK(card.frames.At(bytes, 0) != nullptr);
  CHECK(card.frames.At(1, bytes) == nullptr);
  CHECK(card.frames.At(bytes + 1, 0) == nullptr);
  CHECK(card.frames.At(UINT64_MAX, 2) == nullptr);
  CHECK(card.frames.At(2, UINT64_MAX) == nullptr);
}

TEST_CASE("bytes that a frame fetches are copied, and their options are cleared") {
  Card card(8, 4096);
  const auto bytes = Payload(1024);
  const uint64_t source = card.frames.tx[7].addr;
  memcpy(card.memory.data() + source, bytes.data(), bytes.size());
  std::vector<uint8_t> frame(60 + 1024 + kIcrcBytes);
  memcpy(frame.data() + 60, &source, sizeof source);
  card.Send(frame, 1024 << kTxIcrcShift | kTxFetchSpan | kTxContinuesBurst);
  card.frames.CompleteIcrcs();
  CHECK(memcmp(card.memory.data() + card.frames.tx[0].addr + 60, bytes.data(), bytes.size()) == 0);
  CHECK(card.frames.tx[0].options == kTxContinuesBurst);
}

TEST_CASE("spans and addresses that cannot be are left alone") {
  Card card(8, 4096);
  const uint64_t outside = UINT64_MAX - 100;
  std::vector<uint8_t> frame = Payload(60 + 1024 + kIcrcBytes);
  memcpy(frame.data() + 60, &outside, sizeof outside);
  for (const uint32_t span : {1024u, 8192u, 4096u, 100u, 32767u}) {
    CAPTURE(span);
    card.Send(frame, span << kTxIcrcShift | kTxFetchSpan);
    const uint32_t at = card.frames.tx.Producer() - 1;
    card.frames.CompleteIcrcs();
    CHECK(memcmp(card.memory.data() + card.frames.tx[at].addr, frame.data(), frame.size()) == 0);
  }
  card.frames.tx[0].addr = card.memory.size() - 10;
  card.frames.tx[0].options = 1024u << kTxIcrcShift;
  card.frames.CompleteIcrcs();
}

TEST_CASE("each counter has a name of its own") {
  std::vector<std::string> names;
  FrameCounters{}.ForEach([&](const char* name, uint64_t value) {
    CHECK(value == 0);
    names.push_back(name);
  });
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK(names.size() == sizeof(FrameCounters) / sizeof(uint64_t));
}
