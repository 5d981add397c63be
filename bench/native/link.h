/* A link without a protocol: frames with a UDP payload of fixed size, sent and counted. */
#pragma once
#include <stdint.h>

#include "common.h"

enum { HEADERS = 14 + 20 + 8 };

struct link {
    /* Sends up to `count` frames, without waiting for room. @return the number of frames sent */
    int (*send)(int count);
    /* Receives frames, and waits for the first one unless `spin`. @return the number of frames received */
    int (*receive)(int spin);
};

struct link open_packet(const struct options *o);
struct link open_udp(const struct options *o);
struct link open_xdp(const struct options *o);

/* Writes Ethernet, IPv4 and UDP headers for a payload of `payload` bytes. */
void write_headers(uint8_t *frame, const struct options *o, int payload);
/* The longest wait of a receive in ms, so that the end of a run is noticed. */
enum { WAIT = 20 };
