#include "core/icrc.h"

#include <doctest/doctest.h>
#include <algorithm>

#include "card.h"
#include "core/crc.h"

namespace {

/// Continues a register bit by bit.
uint32_t Slow(uint32_t crc, const uint8_t* bytes, size_t length) {
  for (size_t i = 0; i < length; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return crc;
}

uint32_t WordAt(const std::vector<uint8_t>& bytes, size_t at) {
  uint32_t word;
  memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

}  // namespace

TEST_CASE("all CRC methods of this processor give the CRC-32 of each length, and copy the bytes") {
  for (const CrcMethod& method : CrcMethods()) {
    CAPTURE(method.name);
    for (uint32_t bytes = 256; bytes <= 8192; bytes += 256) {
      CAPTURE(bytes);
      // at an odd address
      const auto data = Payload(bytes + 1, bytes);
      std::vector<uint8_t> copy(bytes + 3);
      const uint32_t expected = Slow(0x12345678, data.data() + 1, bytes);
      CHECK(method.Continue(0x12345678, data.data() + 1, bytes) == expected);
      CHECK(method.Continue(0x12345678, data.data() + 1, bytes, copy.data() + 3) == expected);
      CHECK(memcmp(copy.data() + 3, data.data() + 1, bytes) == 0);
    }
  }
}

TEST_CASE("a span that lacks its part is completed from its own place, or from another") {
  if (CrcMethods().empty()) return;
  const auto span = Payload(512);
  for (const bool isElsewhere : {false, true}) {
    CAPTURE(isElsewhere);
    std::vector<uint8_t> place(512 + kIcrcBytes);
    if (!isElsewhere) memcpy(place.data(), span.data(), span.size());
    const uint32_t before = 0xcafe1234;
    memcpy(place.data() + 512, &before, sizeof before);
    CompleteIcrc(place.data(), 512, isElsewhere ? span.data() : place.data());
    CHECK(memcmp(place.data(), span.data(), span.size()) == 0);
    CHECK(WordAt(place, 512) == ~Slow(before, span.data(), 512));
  }
}

TEST_CASE("the folded part of a received packet is that of the longest span that fits") {
  if (CrcMethods().empty()) return;
  for (uint32_t bytes = 0; bytes < 5000; bytes += 13) {
    CAPTURE(bytes);
    const auto packet = Payload(bytes);
    auto folded = packet;
    FoldIcrc(folded.data(), bytes);
    uint32_t span = 4096;
    while (span >= 256 && span + kBthBytes + kIcrcBytes > bytes) span /= 2;
    if (span < 256) {
      CHECK(folded == packet);
      continue;
    }
    const size_t end = bytes - kIcrcBytes;
    CHECK(WordAt(folded, end) == (WordAt(packet, end) ^ Slow(0, packet.data() + end - span, span)));
    folded.resize(end);
    CHECK(std::equal(folded.begin(), folded.end(), packet.begin()));
  }
}

TEST_CASE("a span has a place if it is a multiple of 256 up to 4096 and the frame is long enough") {
  if (CrcMethods().empty()) return;
  uint8_t frame[600];
  CHECK(SpanOf(frame, 600, 512) == frame + 600 - kIcrcBytes - 512);
  CHECK(SpanOf(frame, 600, 0) == nullptr);
  CHECK(SpanOf(frame, 600, 100) == nullptr);
  CHECK(SpanOf(frame, 600, 1024) == nullptr);
  CHECK(SpanOf(frame, 3, 256) == nullptr);
  CHECK(SpanOf(frame, UINT32_MAX, 8192) == nullptr);
}
