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

/// Returns the time of CLOCK_MONOTONIC, which is that of process.hrtime.
inline int64_t MonotonicTime() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * kSecond + now.tv_nsec;
}
