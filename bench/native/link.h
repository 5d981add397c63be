/* A link without a protocol: frames with a UDP payload of fixed size, sent and counted. */
#pragma once
#include <stdint.h>

#include "common.h"

enum { HEADERS = 14 + 20 + 8 };

struct link {
    /* Sends up to `count` frames. @return how many; never waits for room */
    int (*send)(int count);
    /* Takes what has arrived, waiting for it unless `spin`. @return frames */
    int (*receive)(int spin);
};

struct link open_packet(const struct options *o);
struct link open_udp(const struct options *o);
struct link open_xdp(const struct options *o);

/* Writes Ethernet, IPv4 and UDP headers for `payload` bytes behind them. */
void write_headers(uint8_t *frame, const struct options *o, int payload);
/* So long a receive waits at the most, so that the end of a run is seen (ms). */
enum { WAIT = 20 };
