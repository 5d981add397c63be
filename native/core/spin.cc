#include "spin.h"

#include <algorithm>

void Spin::RecordSleep(int64_t duration) {
  if (max_ == kForever) return;
  length_ = duration < max_ ? std::min(max_, std::max(2 * length_, max_ / 8)) : length_ / 2;
  if (length_ < max_ / 32) length_ = 0;
}
