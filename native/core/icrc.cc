#include "icrc.h"

#include <cstring>

#include "crc.h"

namespace {

constexpr uint32_t kSmallestSpan = 256, kLargestSpan = 4096;
const CrcMethod kBest = CrcMethods().empty() ? CrcMethod{} : CrcMethods()[0];

}  // namespace

uint8_t* SpanOf(uint8_t* frame, uint32_t frameBytes, uint32_t span) {
  const bool isSpan = span != 0 && span % kSmallestSpan == 0 && span <= kLargestSpan;
  const bool isPossible = kBest.alone != nullptr && isSpan && frameBytes >= span + kIcrcBytes;
  return isPossible ? frame + frameBytes - kIcrcBytes - span : nullptr;
}

void CompleteIcrc(uint8_t* place, uint32_t span, const uint8_t* from) {
  uint32_t icrc;
  memcpy(&icrc, place + span, sizeof icrc);
  icrc = ~kBest.Continue(icrc, from, span, from == place ? nullptr : place);
  memcpy(place + span, &icrc, sizeof icrc);
}

void FoldIcrc(uint8_t* payload, uint32_t payloadBytes) {
  if (payloadBytes < kBthBytes + kIcrcBytes + kSmallestSpan) return;
  uint32_t span = kLargestSpan;
  while (span > payloadBytes - kBthBytes - kIcrcBytes) span >>= 1;
  uint8_t* end = payload + payloadBytes - kIcrcBytes;
  uint32_t icrc;
  memcpy(&icrc, end, sizeof icrc);
  icrc ^= kBest.Continue(0, end - span, span);
  memcpy(end, &icrc, sizeof icrc);
}
