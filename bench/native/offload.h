/* The links' CRC (native/crc.h) for programs in C. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the name of the CRC implementation at rank `place`, 0 being the fastest; null when there are fewer. */
const char *offload_name(uint32_t place);
/* Continues a CRC-32 register, which is not complemented, by a multiple of 256 bytes. */
uint32_t offload_crc(uint32_t place, uint32_t start, const uint8_t *from, uint32_t bytes);

#ifdef __cplusplus
}
#endif
