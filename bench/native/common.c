#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* --rkey and --address belong to the --qpn before them. */
static struct target *last_target(struct options *o) { return &o->targets[o->target_count ? o->target_count - 1 : 0]; }

struct options parse_options(int argc, char **argv, const char *words[2]) {
    struct options o = {.port = 4791, .bytes = 64, .segments = 1, .window = 512, .warm = 100, .ms = 300};
    static const struct option known[] = {
        {"interface", 1, 0, 'i'}, {"local", 1, 0, 'l'},  {"peer", 1, 0, 'p'},   {"shared", 1, 0, 's'},
        {"source-mac", 1, 0, 'a'}, {"dest-mac", 1, 0, 'b'}, {"port", 1, 0, 'o'},   {"bytes", 1, 0, 'n'},
        {"segments", 1, 0, 'g'},  {"window", 1, 0, 'w'}, {"warm", 1, 0, 'u'},   {"ms", 1, 0, 'm'},
        {"warm-frames", 1, 0, 'f'}, {"spin", 0, 0, 'q'}, {"zerocopy", 0, 0, 'z'},
        {"message", 1, 0, 'e'},   {"qpn", 1, 0, 'd'},    {"rkey", 1, 0, 'k'},   {"address", 1, 0, 'v'}, {0, 0, 0, 0}};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) switch (c) {
            case 'i': o.interface = optarg; break;
            case 'l': o.local = optarg; break;
            case 'p': o.peer = optarg; break;
            case 's': o.shared = optarg; break;
            case 'a': o.source_mac = optarg; break;
            case 'b': o.dest_mac = optarg; break;
            case 'o': o.port = atoi(optarg); break;
            case 'n': o.bytes = atoi(optarg); break;
            case 'g': o.segments = atoi(optarg); break;
            case 'w': o.window = atoi(optarg); break;
            case 'u': o.warm = atoi(optarg); break;
            case 'm': o.ms = atoi(optarg); break;
            case 'f': o.warm_frames = atoi(optarg); break;
            case 'q': o.spin = 1; break;
            case 'z': o.zerocopy = 1; break;
            case 'e': o.message = atoi(optarg); break;
            case 'd':
                if (o.target_count == MOST_TARGETS) errno = E2BIG, fail("--qpn");
                o.targets[o.target_count++].qpn = strtoul(optarg, NULL, 0);
                break;
            case 'k': last_target(&o)->rkey = strtoul(optarg, NULL, 0); break;
            case 'v': last_target(&o)->address = strtoull(optarg, NULL, 0); break;
            default: exit(2);
        }
    for (int i = 0; i < 2; i++) words[i] = optind + i < argc ? argv[optind + i] : "";
    return o;
}

struct shared *map_shared(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared))) fail(path);
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) fail("mmap");
    close(fd);
    return shared;
}

uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static double seconds(struct timeval t) { return t.tv_sec + t.tv_usec * 1e-6; }

double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

noreturn void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

void tell_ready(void) {
    puts("ready");
    fflush(stdout);
}

void note_time(struct times *times, uint64_t ns) {
    if (times->count == times->room) {
        times->room = times->room ? times->room * 2 : 1 << 16;
        times->at = realloc(times->at, times->room * sizeof *times->at);
        if (!times->at) fail("memory for times");
    }
    times->at[times->count++] = ns > UINT32_MAX ? UINT32_MAX : ns;
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void print_times(struct times *times, double cpu) {
    qsort(times->at, times->count, sizeof *times->at, ascending);
    const char *name[] = {"min", "median", "p90", "p99", "p999", "max"};
    const double part[] = {0, 0.5, 0.9, 0.99, 0.999, 1};
    printf("{\"count\":%u,\"cpu\":%.6f", times->count, cpu);
    for (int i = 0; i < 6; i++) {
        /* nearest rank, so that every percentile is a measured time */
        double rank = part[i] * times->count;
        uint32_t at = rank <= 1 ? 0 : (uint32_t)rank - (rank == (uint32_t)rank);
        printf(",\"%s\":%.3f", name[i], times->count ? times->at[at] / 1e3 : 0);
    }
    puts("}");
}

void print_window(uint64_t frames, double seconds, uint64_t all, double cpu) {
    printf("{\"frames\":%llu,\"seconds\":%.6f,\"all\":%llu,\"cpu\":%.6f}\n", (unsigned long long)frames, seconds,
           (unsigned long long)all, cpu);
}
