#include "icrc.h"

#include <cstring>

#include "crc.h"

namespace {

constexpr uint32_t kSmallestShare = 256, kLargestShare = 4096;
const CrcMethod kBest = CrcMethods().empty() ? CrcMethod{} : CrcMethods()[0];

}  // namespace

uint8_t* ShareOf(uint8_t* frame, uint32_t frameBytes, uint32_t share) {
  const bool isShare = share != 0 && share % kSmallestShare == 0 && share <= kLargestShare;
  const bool isPossible = kBest.alone != nullptr && isShare && frameBytes >= share + kIcrcBytes;
  return isPossible ? frame + frameBytes - kIcrcBytes - share : nullptr;
}

void CompleteIcrc(uint8_t* place, uint32_t share, const uint8_t* from) {
  uint32_t icrc;
  memcpy(&icrc, place + share, sizeof icrc);
  icrc = ~kBest.Continue(icrc, from, share, from == place ? nullptr : place);
  memcpy(place + share, &icrc, sizeof icrc);
}

void FoldIcrc(uint8_t* payload, uint32_t payloadBytes) {
  if (payloadBytes < kBthBytes + kIcrcBytes + kSmallestShare) return;
  uint32_t share = kLargestShare;
  while (share > payloadBytes - kBthBytes - kIcrcBytes) share >>= 1;
  uint8_t* end = payload + payloadBytes - kIcrcBytes;
  uint32_t icrc;
  memcpy(&icrc, end, sizeof icrc);
  icrc ^= kBest.Continue(0, end - share, share);
  memcpy(end, &icrc, sizeof icrc);
}
