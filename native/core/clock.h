// Times in nanoseconds.
#pragma once
#include <algorithm>
#include <cstdint>
#include <ctime>

constexpr int64_t kSecond = 1'000'000'000;

/// Returns a duration as the kernel takes it; none if it is negative.
inline timespec TimeSpec(int64_t nanoseconds) {
  const int64_t duration = std::max<int64_t>(nanoseconds, 0);
  return {static_cast<time_t>(duration / kSecond), static_cast<long>(duration % kSecond)};
}

inline int64_t Nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * kSecond + time.tv_nsec; }

inline int64_t TimeOf(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return Nanoseconds(now);
}

/// Returns the time of the clock of process.hrtime.
inline int64_t MonotonicTime() { return TimeOf(CLOCK_MONOTONIC); }
