#include "core/grosplitter.h"

#include <doctest/doctest.h>

#include "card.h"

namespace {

const sockaddr_in kFrom = Address4("10.0.0.1", 4791), kTo = Address4("10.0.0.2", 4791);

/// Puts a frame on the splitter's ring, as a socket does.
void Put(GroSplitter& splitter, const std::vector<uint8_t>& frame, uint32_t segmentBytes) {
  Frames& large = splitter.LargeRing();
  const uint32_t at = large.rx.Producer();
  Descriptor& to = large.rx[at];
  memcpy(large.At(to.addr, frame.size()), frame.data(), frame.size());
  to.len = static_cast<uint32_t>(frame.size());
  to.options = segmentBytes << kRxSegmentShift;
  large.rx.SetProducer(at + 1);
}

}  // namespace

TEST_CASE("a super-packet is split into frames with headers of their own, also over several calls") {
  Card card(4);
  GroSplitter splitter;
  splitter.Open();
  FrameCounters counters;
  const auto payload = Payload(5 * 1000 + 1);
  Put(splitter, Frame(kFrom, kTo, payload), 1000);
  std::vector<uint8_t> received;
  std::vector<size_t> lengths;
  for (int call = 0; call < 2; call++) {
    CHECK(splitter.SplitInto(card.frames, counters) == (call == 0 ? 4 : 2));
    while (card.frames.rx.Filled() > 0) {
      const auto part = PayloadOf(card.Receive());
      lengths.push_back(part.size());
      received.insert(received.end(), part.begin(), part.end());
    }
  }
  CHECK(splitter.IsEmpty());
  CHECK(received == payload);
  CHECK(lengths == std::vector<size_t>{1000, 1000, 1000, 1000, 1000, 1});
  CHECK(counters.rxTruncated == 0);
}

TEST_CASE("a frame that is no super-packet is moved as it is") {
  Card card(4);
  GroSplitter splitter;
  splitter.Open();
  FrameCounters counters;
  const std::vector<uint8_t> other = Payload(60);
  Put(splitter, other, 0);
  // a segment size without a datagram
  Put(splitter, other, 20);
  CHECK(splitter.SplitInto(card.frames, counters) == 2);
  CHECK(card.Receive() == other);
  CHECK(card.Receive() == other);
}

TEST_CASE("frames that are longer than a slot are counted, and those behind them are moved") {
  Card card(4, 512);
  GroSplitter splitter;
  splitter.Open();
  FrameCounters counters;
  Put(splitter, Frame(kFrom, kTo, Payload(2000)), 900);
  Put(splitter, Frame(kFrom, kTo, Payload(100)), 0);
  CHECK(splitter.SplitInto(card.frames, counters) == 2);
  CHECK(counters.rxTruncated == 2);
  CHECK(PayloadOf(card.Receive()).size() == 200);
  CHECK(PayloadOf(card.Receive()) == Payload(100));
}
