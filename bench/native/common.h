/* Shared by the programs of this folder: options, the clock, the counters that two ends on one machine share, and the
   output of results. */
#pragma once
#include <stdint.h>
#include <stdnoreturn.h>

/* Counters in a file that both ends on one machine map: flow control without traffic on the wire. */
struct shared {
    _Alignas(64) volatile uint64_t received; /* frames, counted by the sink */
    _Alignas(64) volatile uint32_t stop;     /* set by the flood when it ends */
};

/* A queue pair of the other end, and the memory that the messages go to. */
struct target {
    uint32_t qpn, rkey;
    uint64_t address;
};
enum { MOST_TARGETS = 2 };

struct options {
    const char *interface, *local, *peer, *shared;
    const char *source_mac, *dest_mac;
    int port;
    int bytes;    /* size of a message (tcp), or of the UDP payload of a frame */
    int segments; /* frames of one super-packet; 1 = no segmentation offload */
    int window;   /* frames, or calls with MSG_ZEROCOPY, in flight */
    int warm, ms; /* milliseconds of the warm-up and of the measurement */
    int warm_frames; /* that the warm-up of a flood has besides, unless that takes a second longer */
    int spin;     /* poll instead of sleeping in the kernel */
    int zerocopy; /* send by MSG_ZEROCOPY (tcp) */
    int message;  /* bytes of a message of RC WRITEs; 0 = the frames are no RDMA packets */
    struct target targets[MOST_TARGETS];
    int target_count;
};

/* Parses the options, and stores the words before the first option, at most two, in `words`. */
struct options parse_options(int argc, char **argv, const char *words[2]);
struct shared *map_shared(const char *path);

uint64_t now(void);       /* ns, monotonic */
double cpu_seconds(void); /* user and system time of this process */
noreturn void fail(const char *what);
/* Prints a line that tells the benchmark to start the other end. */
void tell_ready(void);

/* Round-trip times in ns. */
struct times {
    uint32_t *at;
    uint32_t count, room;
};
void note_time(struct times *times, uint64_t ns);
void print_times(struct times *times, double cpu);
/* Prints the frames of a window of `seconds`. The CPU time is that of `all` frames, including the warm-up. */
void print_window(uint64_t frames, double seconds, uint64_t all, double cpu);
