#include "offload.h"

#include "../../native/core/crc.h"

const char* offload_name(uint32_t place) {
  return place < CrcMethods().size() ? CrcMethods()[place].name : nullptr;
}

uint32_t offload_crc(uint32_t place, uint32_t start, const uint8_t* from, uint32_t bytes) {
  return CrcMethods()[place].Continue(start, from, bytes);
}
