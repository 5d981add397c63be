#include "icrc.h"

#include <cstring>

#include "crc.h"

namespace {

constexpr uint32_t kSmallestShare = 256, kLargestShare = 4096;
const Crc kBest = CrcMethods().empty() ? nullptr : CrcMethods()[0].crc;

}  // namespace

void CompleteIcrc(uint8_t* frame, uint32_t frameBytes, uint32_t share) {
  const bool isShare = share % kSmallestShare == 0 && share <= kLargestShare;
  if (kBest == nullptr || !isShare || frameBytes < share + kIcrcBytes) return;
  uint8_t* end = frame + frameBytes - kIcrcBytes;
  uint32_t icrc;
  memcpy(&icrc, end, sizeof icrc);
  icrc = ~kBest(icrc, end - share, share);
  memcpy(end, &icrc, sizeof icrc);
}

void FoldIcrc(uint8_t* payload, uint32_t payloadBytes) {
  if (payloadBytes < kBthBytes + kIcrcBytes + kSmallestShare) return;
  uint32_t share = kLargestShare;
  while (share > payloadBytes - kBthBytes - kIcrcBytes) share >>= 1;
  uint8_t* end = payload + payloadBytes - kIcrcBytes;
  uint32_t icrc;
  memcpy(&icrc, end, sizeof icrc);
  icrc ^= kBest(0, end - share, share);
  memcpy(end, &icrc, sizeof icrc);
}
