// The time for which the card's thread polls for work before it sleeps: see src/device/spin.ts.
#pragma once
#include <cstdint>

class Spin {
 public:
  /// @param max nanoseconds; 0 = never poll, kForever = never sleep
  explicit Spin(int64_t max) : max_(max), length_(max) {}
  static constexpr int64_t kForever = INT64_MAX;

  int64_t Duration() const { return length_; }
  /// Adapts the duration to a sleep that work has ended. @param duration of the sleep
  void RecordSleep(int64_t duration);

 private:
  const int64_t max_;
  int64_t length_;
};
