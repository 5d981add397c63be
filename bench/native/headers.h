/* The headers of frames: Ethernet, IPv4 and UDP. */
#pragma once
#include <stdint.h>

#include "common.h"

enum { HEADERS = 14 + 20 + 8 };

/* Writes Ethernet, IPv4 and UDP headers for a payload of `payload` bytes. */
void write_headers(uint8_t *frame, const struct options *o, int payload);
/* Returns the Internet checksum of an even number of bytes. */
uint16_t checksum(const uint8_t *at, int bytes);
void put16(uint8_t *at, uint16_t value);
void put32(uint8_t *at, uint32_t value);
