/* Registered memory and access to its contents. */
#include "peer.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct region regions[MAX_OBJECTS];

struct region *region_at(uint64_t i, uint64_t offset, uint64_t length) {
    if (i >= MAX_OBJECTS || !regions[i].mr) fail("no mr %" PRIu64, i);
    else if (offset > regions[i].size || length > regions[i].size - offset)
        fail("%" PRIu64 "+%" PRIu64 " is outside mr %" PRIu64 " of %" PRIu64 " bytes", offset, length, i, regions[i].size);
    return problem[0] ? NULL : &regions[i];
}

/* Returns the bytes that mr=, off= and len= name. */
static uint8_t *bytes_named(uint64_t length) {
    uint64_t i = number("mr"), offset = number_or("off", 0);
    struct region *r = problem[0] ? NULL : region_at(i, offset, length);
    return r ? r->bytes + offset : NULL;
}

void do_reg(void) {
    uint64_t size = number("size"), access = number_or("access", ALL_ACCESS);
    struct region *r = regions;
    while (r < regions + MAX_OBJECTS && r->mr) r++;
    if (r == regions + MAX_OBJECTS) fail("more than %d regions", MAX_OBJECTS);
    if (problem[0]) return;
    void *bytes;
    int error = posix_memalign(&bytes, 4096, size ? size : 1);
    if (error) {
        refused("posix_memalign", error);
        return;
    }
    memset(bytes, 0, size);
    r->mr = text("iova") ? ibv_reg_mr_iova(pd, bytes, size, number("iova"), access) : ibv_reg_mr(pd, bytes, size, access);
    if (!r->mr) {
        refused("ibv_reg_mr", errno);
        free(bytes);
        return;
    }
    r->bytes = bytes, r->size = size;
    uint64_t address = text("iova") ? number("iova") : (uintptr_t)bytes;
    printf("{\"mr\":%d,\"addr\":\"0x%" PRIx64 "\",\"lkey\":%u,\"rkey\":%u,\"size\":%" PRIu64 "}", (int)(r - regions), address, r->mr->lkey,
           r->mr->rkey, size);
}

void do_dereg(void) {
    uint64_t i = number("mr");
    struct region *r = problem[0] ? NULL : region_at(i, 0, 0);
    if (!r) return;
    int error = ibv_dereg_mr(r->mr);
    if (error) {
        refused("ibv_dereg_mr", error);
        return;
    }
    free(r->bytes);
    *r = (struct region){0};
    printf("{}");
}

/* Marsaglia's xorshift32: each byte is the low byte of the state after a step. Seed 0 means 0x9e3779b9. */
static void pattern(uint8_t *to, uint64_t length, uint32_t seed) {
    uint32_t x = seed ? seed : 0x9e3779b9;
    for (uint64_t i = 0; i < length; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        to[i] = x;
    }
}

static uint32_t crc32(const uint8_t *bytes, uint64_t length) {
    static uint32_t table[256];
    for (uint32_t i = 0; !table[255] && i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320 : 0);
    }
    uint32_t crc = ~0u;
    for (uint64_t i = 0; i < length; i++) crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 255];
    return ~crc;
}

void do_fill(void) {
    uint64_t length = number("len"), seed = number("seed");
    uint8_t *bytes = bytes_named(length);
    if (!bytes) return;
    pattern(bytes, length, seed);
    printf("{}");
}

void do_write(void) {
    char *hex = text("hex");
    uint64_t length = hex ? strlen(hex) / 2 : 0;
    if (!hex) fail("hex= is missing");
    uint8_t *bytes = bytes_named(length);
    if (bytes && from_hex(hex, bytes, length)) printf("{}");
}

void do_read(void) {
    uint64_t length = number("len");
    uint8_t *bytes = bytes_named(length);
    if (!bytes) return;
    printf("{\"hex\":\"");
    print_hex(bytes, length);
    printf("\"}");
}

void do_crc(void) {
    uint64_t length = number("len");
    uint8_t *bytes = bytes_named(length);
    if (bytes) printf("{\"crc\":%u}", crc32(bytes, length));
}
