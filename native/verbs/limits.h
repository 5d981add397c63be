// Constants of the adapter. The card's own limits are in card_codes.h.
#pragma once
#include <cstdint>

/// Bytes of the card's memory, which has the rings and the queue pairs. The kernel gives pages that are used.
constexpr uint64_t kCardMemory = 1ull << 30;
/// The UDP port of RoCE v2 (IBTA A17.9.2).
constexpr uint16_t kRocePort = 4791;
/// Queue pair numbers of an adapter with a slot of the broker have 16 bits, and the card leaves three of four unused.
constexpr uint32_t kMaxQp = 16384, kMaxMr = 1 << 18;
