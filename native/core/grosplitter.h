// Splits super-packets for a card whose slots hold one frame each: the socket receives into a ring of large slots, and
// the splitter copies each segment, with headers of its own, into the card's receive ring. It belongs to the thread
// that moves the frames.
#pragma once
#include <memory>

#include "frames.h"

class GroSplitter {
 public:
  void Open();
  void Close() { memory_.reset(), ring_.Detach(); }
  bool IsOpen() const { return memory_ != nullptr; }
  /// The rings that the socket receives into.
  Frames& LargeRing() { return ring_; }
  bool IsEmpty() const { return ring_.rx.Filled() == 0; }
  /// Moves frames to the card's receive ring, as many as it has room for, and counts those that are longer than its
  /// slots as truncated. @returns the number of frames moved
  uint32_t SplitInto(Frames& card, FrameCounters& counters);

 private:
  std::unique_ptr<uint8_t[]> memory_;
  Frames ring_;
  /// Segments of the oldest super-packet that were moved.
  uint32_t segment_ = 0;
};
