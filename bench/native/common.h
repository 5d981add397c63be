/* What the programs of this folder share: options, the clock, what two ends of one machine tell each other, and how a result is told. */
#pragma once
#include <stdint.h>
#include <stdnoreturn.h>

/* Two ends on one machine count in a file that both map: credit that costs nothing on the wire. */
struct shared {
    _Alignas(64) volatile uint64_t received; /* frames, counted by the sink */
    _Alignas(64) volatile uint32_t stop;     /* set by the flood when it ends */
};

struct options {
    const char *interface, *local, *peer, *shared;
    const char *source_mac, *dest_mac;
    int port;
    int bytes;    /* of a message (tcp), or of the UDP payload of a frame */
    int segments; /* frames that leave in one go: 1 = each by itself */
    int window;   /* frames in flight */
    int warm, ms; /* before and while it is measured */
    int spin;     /* polls instead of sleeping in the kernel */
};

/* @return the words before the first option, at most two, in `words` */
struct options parse_options(int argc, char **argv, const char *words[2]);
struct shared *map_shared(const char *path);

uint64_t now(void);       /* ns, monotonic */
double cpu_seconds(void); /* user and system of this process */
noreturn void fail(const char *what);
/* Says on standard output that the other end may start. */
void tell_ready(void);

/* Times of round trips, ns. */
struct times {
    uint32_t *at;
    uint32_t count, room;
};
void note_time(struct times *times, uint64_t ns);
void print_times(struct times *times, double cpu);
/* A window of `seconds`; the CPU time is that of `all` frames, which the warm-up is part of. */
void print_window(uint64_t frames, double seconds, uint64_t all, double cpu);
