// The links' part of the ICRC (native/icrc.h) for programs in C.
#include "../../native/icrc.h"

/// Returns the name of the CRC implementation at rank `place`, 0 being the fastest; null when there are fewer.
extern "C" const char* offload_name(uint32_t place) {
  return place < CrcMethods().size() ? CrcMethods()[place].name : nullptr;
}

extern "C" uint32_t offload_crc(uint32_t place, uint32_t start, const uint8_t* from, uint32_t bytes) {
  return CrcMethods()[place].crc(start, from, bytes);
}
