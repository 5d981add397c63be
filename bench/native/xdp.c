/* The link xdp: AF_XDP by system calls alone. While the program runs, it redirects every frame of queue 0. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "headers.h"
#include "link.h"

/* Missing in older kernel headers. */
enum { USE_SG = 1 << 4, CONTINUED = 1 << 0, HAS_FRAGS = 1 << 5 };
enum { CHUNK = 4096, ROOM = 3840, RING = 2048, CHUNKS = 2 * RING };

struct ring {
    uint32_t *producer, *consumer, *flags;
    void *entries;
    uint32_t mine; /* the cursor that this end advances */
};

static int fd;
static uint8_t *umem;
static struct ring fill, completion, rx, tx;
/* Frames to send, each in adjacent chunks: the offsets of those that are free. */
static uint64_t free_frames[RING];
static int free_count, frame_bytes, chunks_per_frame;
static const struct content *content;

static uint32_t load(uint32_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static void store(uint32_t *at, uint32_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }

static struct ring map_ring(const struct xdp_ring_offset *offset, size_t entry, uint64_t where) {
    uint8_t *at = mmap(NULL, offset->desc + RING * entry, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, where);
    if (at == MAP_FAILED) fail("mmap of a ring");
    return (struct ring){(void *)(at + offset->producer), (void *)(at + offset->consumer), (void *)(at + offset->flags), at + offset->desc, 0};
}

static int bpf(int command, union bpf_attr *attr) { return syscall(SYS_bpf, command, attr, sizeof *attr); }

enum { R0, R1, R2, R3, R4 };
#define LOAD(size, to, from, at) {.code = BPF_LDX | BPF_MEM | (size), .dst_reg = (to), .src_reg = (from), .off = (at)}

/* Attaches a program that redirects each frame of IPv4 to the socket of its queue, as listed in the map of sockets. ARP
   goes to the kernel. */
static void attach(int interface) {
    union bpf_attr map = {.map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = 1};
    int sockets = bpf(BPF_MAP_CREATE, &map);
    if (sockets < 0) fail("map of sockets");
    struct bpf_insn program[] = {
        LOAD(BPF_W, R2, R1, offsetof(struct xdp_md, data)),
        LOAD(BPF_W, R3, R1, offsetof(struct xdp_md, data_end)),
        {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = R4, .src_reg = R2},
        {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = R4, .imm = ETH_HLEN},
        {.code = BPF_JMP | BPF_JGT | BPF_X, .dst_reg = R4, .src_reg = R3, .off = 8},
        LOAD(BPF_H, R4, R2, offsetof(struct ethhdr, h_proto)),
        {.code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = R4, .imm = htons(ETH_P_IP), .off = 6},
        LOAD(BPF_W, R2, R1, offsetof(struct xdp_md, rx_queue_index)),
        {.code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = R1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = sockets},
        {0},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = R3, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
        {.code = BPF_JMP | BPF_EXIT},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = R0, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr load = {.prog_type = BPF_PROG_TYPE_XDP, .insns = (uintptr_t)program, .insn_cnt = sizeof program / sizeof *program,
                           .license = (uintptr_t) "GPL", .prog_flags = HAS_FRAGS};
    int loaded = bpf(BPF_PROG_LOAD, &load);
    if (loaded < 0) fail("load the program");
    /* the kernel removes the BPF link with its last descriptor, at the latest when this process ends */
    union bpf_attr link = {.link_create = {.prog_fd = loaded, .target_ifindex = interface, .attach_type = BPF_XDP, .flags = XDP_FLAGS_DRV_MODE}};
    if (bpf(BPF_LINK_CREATE, &link) < 0) fail("attach the program");
    uint32_t queue = 0;
    union bpf_attr entry = {.map_fd = sockets, .key = (uintptr_t)&queue, .value = (uintptr_t)&fd};
    if (bpf(BPF_MAP_UPDATE_ELEM, &entry) < 0) fail("put the socket in the map");
}

static void open_socket(int interface) {
    fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("AF_XDP socket");
    umem = mmap(NULL, (size_t)CHUNK * CHUNKS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    struct xdp_umem_reg region = {.addr = (uintptr_t)umem, .len = (uint64_t)CHUNK * CHUNKS, .chunk_size = CHUNK};
    const int entries = RING;
    if (setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &region, sizeof region) ||
        setsockopt(fd, SOL_XDP, XDP_UMEM_FILL_RING, &entries, sizeof entries) ||
        setsockopt(fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &entries, sizeof entries) ||
        setsockopt(fd, SOL_XDP, XDP_RX_RING, &entries, sizeof entries) || setsockopt(fd, SOL_XDP, XDP_TX_RING, &entries, sizeof entries))
        fail("AF_XDP rings");
    struct xdp_mmap_offsets offsets;
    socklen_t size = sizeof offsets;
    if (getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &size)) fail("offsets of the rings");
    fill = map_ring(&offsets.fr, sizeof(uint64_t), XDP_UMEM_PGOFF_FILL_RING);
    completion = map_ring(&offsets.cr, sizeof(uint64_t), XDP_UMEM_PGOFF_COMPLETION_RING);
    rx = map_ring(&offsets.rx, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING);
    tx = map_ring(&offsets.tx, sizeof(struct xdp_desc), XDP_PGOFF_TX_RING);
    struct sockaddr_xdp address = {.sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY | XDP_USE_NEED_WAKEUP | USE_SG, .sxdp_ifindex = interface};
    /* the kernel frees the queue of a closed socket with a short delay */
    for (int tries = 0; bind(fd, (void *)&address, sizeof address); tries++) {
        if (errno != EBUSY || tries == 200) fail("bind");
        usleep(2000);
    }
}

/* Collects the frames whose transmission is complete: the kernel returns their chunks in order. */
static void collect(void) {
    for (uint32_t end = load(completion.producer); completion.mine != end; completion.mine++) {
        uint64_t chunk = ((uint64_t *)completion.entries)[completion.mine % RING];
        if ((chunk / CHUNK - RING) % chunks_per_frame == 0) free_frames[free_count++] = chunk;
    }
    store(completion.consumer, completion.mine);
}

static int xdp_send(int count) {
    enum { MOST = 64 };
    collect();
    if (count > MOST) count = MOST;
    if (count > free_count) count = free_count;
    for (int i = 0; i < count; i++) {
        uint64_t at = free_frames[--free_count];
        int left = content ? content->fill(umem + at) : frame_bytes;
        for (; left > 0; left -= CHUNK, at += CHUNK)
            ((struct xdp_desc *)tx.entries)[tx.mine++ % RING] =
                (struct xdp_desc){at, left < CHUNK ? left : CHUNK, left > CHUNK ? CONTINUED : 0};
    }
    store(tx.producer, tx.mine);
    while (load(tx.consumer) != tx.mine && sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0)
        if (errno != EAGAIN && errno != EBUSY && errno != ENOBUFS) fail("kick");
    return count;
}

static int xdp_receive(int spin) {
    if (!spin && load(rx.producer) == rx.mine) {
        struct pollfd readable = {fd, POLLIN, 0};
        poll(&readable, 1, WAIT);
    }
    int frames = 0;
    for (uint32_t end = load(rx.producer); rx.mine != end; rx.mine++) {
        const struct xdp_desc *d = &((struct xdp_desc *)rx.entries)[rx.mine % RING];
        ((uint64_t *)fill.entries)[fill.mine++ % RING] = d->addr / CHUNK * CHUNK;
        if (content) content->see(umem + d->addr, d->len);
        frames += !(d->options & CONTINUED);
    }
    store(rx.consumer, rx.mine);
    store(fill.producer, fill.mine);
    return frames;
}

struct link open_xdp(const struct options *o, const struct content *own) {
    int interface = if_nametoindex(o->interface);
    content = own;
    frame_bytes = HEADERS + o->bytes;
    chunks_per_frame = (frame_bytes + CHUNK - 1) / CHUNK;
    open_socket(interface);
    for (; fill.mine < RING; fill.mine++) ((uint64_t *)fill.entries)[fill.mine] = (uint64_t)fill.mine * CHUNK;
    store(fill.producer, fill.mine);
    for (int i = RING; i + chunks_per_frame <= CHUNKS; i += chunks_per_frame) {
        write_headers(umem + (size_t)i * CHUNK, o, o->bytes);
        free_frames[free_count++] = (uint64_t)i * CHUNK;
    }
    attach(interface);
    return (struct link){xdp_send, xdp_receive};
}
