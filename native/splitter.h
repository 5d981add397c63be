// For a card whose slots hold one frame each: super-packets are received into a ring with large slots, and taken apart on
// their way to the card's.
#pragma once
#include <memory>

#include "frames.h"

class Splitter {
 public:
  void Open();
  void Close() { memory_.reset(), ring_.Detach(); }
  bool IsOpen() const { return memory_ != nullptr; }
  /// What sockets are to receive into.
  Frames& Large() { return ring_; }
  bool IsEmpty() const { return ring_.rx.Filled() == 0; }
  /// Moves frames on, as many as the card's ring has room for. Counts those that are larger than its slots.
  /// @returns how many
  uint32_t Pump(Frames& card, FrameCounters& counters);

 private:
  std::unique_ptr<uint8_t[]> memory_;
  Frames ring_;
  /// How many segments of the oldest super-packet have gone.
  uint32_t segment_ = 0;
};
