/* The link ring: a packet socket whose frames the kernel writes into memory that it shares with the program
   (TPACKET_V3). Receives only. */
#define _GNU_SOURCE
#include <linux/if_packet.h>
#include <poll.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "link.h"

enum { BLOCK = 1 << 18, BLOCKS = 128 };

static int fd;
static uint8_t *blocks;
static int current;

static int ring_receive(int spin) {
    struct tpacket_block_desc *block = (void *)(blocks + (size_t)current * BLOCK);
    if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) {
        struct pollfd readable = {fd, POLLIN, 0};
        if (!spin) poll(&readable, 1, WAIT);
        return 0;
    }
    int frames = block->hdr.bh1.num_pkts;
    __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    current = (current + 1) % BLOCKS;
    return frames;
}

struct link open_ring(const struct options *o) {
    fd = packet_socket(o);
    const int version = TPACKET_V3;
    struct tpacket_req3 wanted = {.tp_block_size = BLOCK, .tp_block_nr = BLOCKS, .tp_frame_size = 1 << 13, .tp_retire_blk_tov = 1};
    wanted.tp_frame_nr = wanted.tp_block_size / wanted.tp_frame_size * BLOCKS;
    if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version)) fail("TPACKET_V3");
    if (setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof wanted)) fail("PACKET_RX_RING");
    blocks = mmap(NULL, (size_t)BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (blocks == MAP_FAILED) fail("mmap of the ring");
    bind_packet(fd, o);
    return (struct link){0, ring_receive};
}
