/* What every byte costs at the least in C: `sums BYTES MS` prints ns for one copy, one CRC-32, both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common.h"

#ifdef HAVE_ISAL
#include <isa-l/crc.h>
#endif

static uint8_t source[1 << 16], target[1 << 16];
static int bytes;
static uint32_t kept;

static void copy(void) {
    memcpy(target, source, bytes);
    __asm__ volatile("" : : "r"(target) : "memory");
}
static void zlib_sum(void) { kept = crc32(kept, source, bytes); }
static void zlib_both(void) { copy(), kept = crc32(kept, target, bytes); }
#ifdef HAVE_ISAL
static void isal_sum(void) { kept = crc32_gzip_refl(kept, source, bytes); }
static void isal_both(void) { copy(), kept = crc32_gzip_refl(kept, target, bytes); }
#endif

static double ns_of(void (*work)(void), int ms) {
    uint64_t begin = now(), end = begin + ms * 1000000ull, count = 0, t;
    do {
        for (int i = 0; i < 64; i++) work();
        count += 64;
    } while ((t = now()) < end);
    return (double)(t - begin) / count;
}

int main(int argc, char **argv) {
    bytes = argc > 1 ? atoi(argv[1]) : 4096;
    int ms = argc > 2 ? atoi(argv[2]) : 100;
    printf("{\"copy\":%.2f,\"zlib\":%.2f,\"copyAndZlib\":%.2f", ns_of(copy, ms), ns_of(zlib_sum, ms), ns_of(zlib_both, ms));
#ifdef HAVE_ISAL
    printf(",\"isal\":%.2f,\"copyAndIsal\":%.2f", ns_of(isal_sum, ms), ns_of(isal_both, ms));
#endif
    printf(",\"kept\":%u}\n", kept);
}
