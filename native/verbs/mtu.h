// Path MTUs: verbs has a code for each, the card their bytes.
#pragma once
#include <cstdint>

#include "abi.h"

/// Returns the bytes of a path MTU; 0 if there is no such code.
inline uint32_t MtuBytes(ibv_mtu mtu) { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0; }

/// Returns the code of the smallest path MTU that has at least these bytes, or of the largest path MTU.
inline ibv_mtu MtuCode(uint32_t bytes) {
  int code = IBV_MTU_256;
  while (code < IBV_MTU_4096 && MtuBytes(static_cast<ibv_mtu>(code)) < bytes) code++;
  return static_cast<ibv_mtu>(code);
}
