/* A link without a protocol. Roles work in pairs: `rawlink LINK flood` with `sink`, `ping` with `echo`. LINK is packet,
   udp or xdp; a sink may also be ring or uring. With --message, `rawlink xdp flood` sends frames that carry RC WRITEs,
   and `rawlink xdp write` sends them to queue pairs and waits for their acknowledgements. Messages go to the queue
   pairs of --qpn by turns; a packet socket with --qpn takes only the frames to that one. */
#include <string.h>

#include "link.h"
#include "write.h"

/* Sends frames, and prints the frames of the window, all frames, and the CPU time of all. */
static void flood(const struct link *link, const struct options *o, struct shared *shared) {
    uint64_t sent = 0, lost = 0, stuck = 0;
    uint64_t from = now() + o->warm * 1000000ull, at_from = 0, began = 0;
    double cpu = cpu_seconds();
    for (uint64_t t = now(); !began || t < began + o->ms * 1000000ull; t = now()) {
        int is_warm = shared->received >= (uint64_t)o->warm_frames || t >= from + 1000000000ull;
        if (!began && t >= from && is_warm) began = t, at_from = shared->received;
        uint64_t flying = sent - lost - shared->received, credit = flying < (uint64_t)o->window ? o->window - flying : 0;
        if (credit < (uint64_t)o->segments) {
            /* frames that were lost give their credit back */
            if (!stuck) stuck = t;
            if (t - stuck > 10000000) lost += flying, stuck = 0;
            continue;
        }
        stuck = 0;
        sent += link->send((int)credit);
    }
    uint64_t ended = now(), received = shared->received;
    double used = cpu_seconds() - cpu;
    shared->stop = 1;
    print_window(received - at_from, (ended - began) * 1e-9, received, used);
}

static void sink(const struct link *link, const struct options *o, struct shared *shared) {
    double cpu = cpu_seconds();
    while (!shared->stop) {
        int n = link->receive(o->spin);
        /* there may be several sinks */
        if (n) __atomic_fetch_add(&shared->received, n, __ATOMIC_RELAXED);
        if (shared->received == 0) cpu = cpu_seconds();
    }
    print_window(0, 0, shared->received, cpu_seconds() - cpu);
}

static void ping(const struct link *link, const struct options *o, struct shared *shared) {
    struct times times = {0};
    double cpu = cpu_seconds();
    uint64_t from = now() + o->warm * 1000000ull, until = from + o->ms * 1000000ull;
    for (uint64_t begin = now(); begin < until; begin = now()) {
        while (!link->send(1)) continue;
        uint64_t end = begin;
        while (!link->receive(o->spin) && end - begin < 100000000) end = now();
        end = now();
        if (begin >= from) note_time(&times, end - begin);
    }
    shared->stop = 1;
    print_times(&times, cpu_seconds() - cpu);
}

static void echo(const struct link *link, const struct options *o, struct shared *shared) {
    double cpu = cpu_seconds();
    struct times none = {0};
    while (!shared->stop)
        for (int n = link->receive(o->spin); n > 0; n--) link->send(1);
    print_times(&none, cpu_seconds() - cpu);
}

static struct link open_link(const char *name, const struct options *o) {
    if (!strcmp(name, "xdp")) return open_xdp(o, o->message ? write_packets(o) : NULL);
    if (!strcmp(name, "udp")) return open_udp(o);
    if (!strcmp(name, "ring")) return open_ring(o);
    if (!strcmp(name, "uring")) return open_uring(o);
    return open_packet(o);
}

int main(int argc, char **argv) {
    const char *words[2];
    struct options o = parse_options(argc, argv, words);
    struct shared *shared = o.shared ? map_shared(o.shared) : NULL;
    struct link link = open_link(words[0], &o);
    tell_ready();
    if (!strcmp(words[1], "flood")) flood(&link, &o, shared);
    else if (!strcmp(words[1], "sink")) sink(&link, &o, shared);
    else if (!strcmp(words[1], "ping")) ping(&link, &o, shared);
    else if (!strcmp(words[1], "write")) write_messages(&link, &o);
    else echo(&link, &o, shared);
}
