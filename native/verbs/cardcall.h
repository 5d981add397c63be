// Calls of the card that make, change or free an object.
#pragma once
#include "adapter.h"

/// The halves of a number of 64 bits, as the card's functions take them.
inline uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }
inline uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }

/// Calls a function of the card that returns an Errno. The caller holds the lock. @returns 0 or an errno; EIO when the
/// card has failed
template <typename Run>
int CallCard(Adapter& adapter, Run run) {
  uint32_t refused = 0;
  const bool works = adapter.Call([&](w2c_card* card) { refused = run(card); });
  return works ? static_cast<int>(refused) : EIO;
}

/// Calls a function of the card that returns a handle, 0 if it refuses. The caller holds the lock. @returns 0 or an
/// errno
template <typename Run>
int MakeInCard(Adapter& adapter, uint32_t& handle, Run run) {
  return CallCard(adapter, [&](w2c_card* card) -> uint32_t {
    handle = run(card);
    return handle != 0 ? 0 : w2c_card_lastErrno(card);
  });
}
