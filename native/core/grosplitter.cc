#include "grosplitter.h"

#include <algorithm>
#include <cstring>

#include "headers.h"

namespace {

constexpr uint32_t kSlots = 8;
constexpr uint32_t kDescriptors = 128;
constexpr uint32_t kFirstSlot = kDescriptors + kSlots * sizeof(Descriptor);
constexpr uint32_t kBytes = kFirstSlot + kSlots * kCoalescedBytes;

}  // namespace

void GroSplitter::Open() {
  memory_ = std::make_unique<uint8_t[]>(kBytes);
  const RingLayout ring{0, 64, kDescriptors, kSlots - 1};
  ring_.Attach(memory_.get(), kBytes, {ring, ring, kCoalescedBytes, false});
  for (uint32_t i = 0; i < kSlots; i++) ring_.rx[i].addr = kFirstSlot + i * kCoalescedBytes;
  segment_ = 0;
}

uint32_t GroSplitter::SplitInto(Frames& card, FrameCounters& counters) {
  uint32_t moved = 0;
  while (!IsEmpty() && card.rx.Free() > 0) {
    const uint32_t from = ring_.rx.Consumer(), to = card.rx.Producer();
    const Descriptor& whole = ring_.rx[from];
    const uint8_t* frame = ring_.At(whole.addr, whole.len);
    const uint32_t segmentBytes = whole.options >> kRxSegmentShift;
    uint32_t headers = 0, start = 0, bytes = whole.len;
    Datagram datagram;
    if (segmentBytes > 0 && ParseUdp(const_cast<uint8_t*>(frame), whole.len, datagram)) {
      headers = datagram.headerBytes;
      start = segment_ * segmentBytes;
      bytes = std::min(segmentBytes, whole.len - headers - start);
    }
    uint8_t* slot = card.At(card.rx[to].addr, card.slotBytes);
    if (slot == nullptr) break;
    if (headers + bytes > card.slotBytes) {
      counters.rxTruncated++;
    } else {
      memcpy(slot, frame, headers);
      memcpy(slot + headers, frame + headers + start, bytes);
      if (headers > 0) SetSegment(slot, datagram, segment_, bytes);
      card.rx[to].len = headers + bytes;
      card.rx[to].options = 0;
      card.rx.SetProducer(to + 1);
      moved++;
    }
    const bool isDone = headers + start + bytes >= whole.len;
    segment_ = isDone ? 0 : segment_ + 1;
    if (isDone) ring_.rx.SetConsumer(from + 1);
  }
  return moved;
}
