// The links' part of the ICRC (native/icrc.h) for programs in C.
#include "../../native/icrc.h"

/// The name of the way that is taken `place` places behind the best one; null when there are not so many.
extern "C" const char* offload_name(uint32_t place) {
  return place < CrcMethods().size() ? CrcMethods()[place].name : nullptr;
}

extern "C" uint32_t offload_crc(uint32_t place, uint32_t start, const uint8_t* from, uint32_t bytes) {
  return CrcMethods()[place].crc(start, from, bytes);
}
