/* A link without a protocol: frames of fixed size, or those of RC WRITEs, sent and counted. */
#pragma once
#include <stdint.h>

#include "common.h"

struct link {
    /* Sends up to `count` frames, without waiting for room. @return the number of frames sent */
    int (*send)(int count);
    /* Receives frames, and waits for the first one unless `spin`. @return the number of frames received */
    int (*receive)(int spin);
};

struct link open_packet(const struct options *o);
struct link open_udp(const struct options *o);
/* Receives by a ring of the packet socket that the kernel and the program share (TPACKET_V3). */
struct link open_ring(const struct options *o);
/* Receives from the packet socket by one io_uring request for all frames. */
struct link open_uring(const struct options *o);

/* What a sender puts into a frame, and sees of a received one. */
struct content {
    /* Completes a frame, which has its headers and the rest of an earlier frame. @return its bytes */
    int (*fill)(uint8_t *frame);
    void (*see)(const uint8_t *frame, int bytes);
};
/* @param content null if all frames are the same and nobody looks at them */
struct link open_xdp(const struct options *o, const struct content *content);

/* Returns a packet socket that takes only the port's frames and is not bound yet. Holds the port. */
int packet_socket(const struct options *o);
void bind_packet(int fd, const struct options *o);
/* The longest wait of a receive in ms, so that the end of a run is noticed. */
enum { WAIT = 20 };
