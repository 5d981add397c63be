/* The least cost of every byte in C: `crc BYTES SPAN MS` prints ns for one copy, one CRC-32, and both, of BYTES at a
   time out of a region of SPAN bytes, which is used in a cycle. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common.h"
#include "offload.h"

#ifdef HAVE_ISAL
#include <isa-l/crc.h>
#endif

static uint8_t sent[1 << 20], received[1 << 20], frame[1 << 16];
static int bytes, span, at;
static uint32_t kept;

static void copy_from_to(uint8_t *to, const uint8_t *from) {
    memcpy(to, from, bytes);
    __asm__ volatile("" : : "r"(to) : "memory");
}
static void next(void) { at = at + 2 * bytes <= span ? at + bytes : 0; }
static void copy(void) { copy_from_to(frame, sent + at), next(); }

typedef uint32_t (*crc_fn)(uint32_t crc, const uint8_t *from, int count);

/* Alternates between a sender's copy, from its region into a frame, and a receiver's. */
static inline void both(crc_fn crc) {
    static int is_received;
    if (is_received)
        kept = crc(kept, frame, bytes), copy_from_to(received + at, frame), next();
    else
        copy_from_to(frame, sent + at), kept = crc(kept, frame, bytes);
    is_received = !is_received;
}

static uint32_t by_zlib(uint32_t crc, const uint8_t *from, int count) { return crc32(crc, from, count); }
static void zlib_sum(void) { kept = by_zlib(kept, sent + at, bytes), next(); }
static void zlib_both(void) { both(by_zlib); }
#ifdef HAVE_ISAL
static uint32_t by_isal(uint32_t crc, const uint8_t *from, int count) { return crc32_gzip_refl(crc, from, count); }
static void isal_sum(void) { kept = by_isal(kept, sent + at, bytes), next(); }
static void isal_both(void) { both(by_isal); }
#endif

static uint32_t way;
static void offload_sum(void) { kept = offload_crc(way, kept, sent + at, bytes), next(); }
static uint32_t by_offload(uint32_t crc, const uint8_t *from, int count) { return offload_crc(0, crc, from, count); }
static void offload_both(void) { both(by_offload); }

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
    span = argc > 2 ? atoi(argv[2]) : bytes;
    int ms = argc > 3 ? atoi(argv[3]) : 100;
    printf("{\"copy\":%.2f,\"zlib\":%.2f,\"copyAndZlib\":%.2f", ns_of(copy, ms), ns_of(zlib_sum, ms), ns_of(zlib_both, ms));
#ifdef HAVE_ISAL
    printf(",\"isal\":%.2f,\"copyAndIsal\":%.2f", ns_of(isal_sum, ms), ns_of(isal_both, ms));
#endif
    if (bytes % 256 == 0 && offload_name(0) != NULL) printf(",\"copyAndOffload\":%.2f", ns_of(offload_both, ms));
    for (const char *name; bytes % 256 == 0 && (name = offload_name(way)) != NULL; way++)
        printf(",\"%s\":%.2f", name, ns_of(offload_sum, ms));
    printf(",\"kept\":%u}\n", kept);
}
