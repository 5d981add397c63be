/* The link uring: a packet socket that io_uring reads by one request for all frames (multishot), into buffers of a ring
   that the program gives. Receives only. */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "link.h"

enum { ENTRIES = 4096, BUFFERS = 2048, BUFFER = 1 << 14, GROUP = 1 };

static int fd, ring;
static uint8_t *queue;
static struct io_uring_params params;
static struct io_uring_sqe *requests;
static struct io_uring_buf_ring *given;
static uint8_t *buffers;
static uint16_t given_tail;

static uint32_t *word(uint32_t offset) { return (uint32_t *)(queue + offset); }

static int enter(unsigned submit, unsigned least) {
    return syscall(SYS_io_uring_enter, ring, submit, least, IORING_ENTER_GETEVENTS, NULL, 0);
}

static void give(uint16_t id) {
    struct io_uring_buf *buffer = &given->bufs[given_tail % BUFFERS];
    buffer->addr = (uintptr_t)(buffers + (size_t)id * BUFFER), buffer->len = BUFFER, buffer->bid = id;
    __atomic_store_n(&given->tail, ++given_tail, __ATOMIC_RELEASE);
}

static void ask(void) {
    uint32_t *tail = word(params.sq_off.tail), at = *tail & *word(params.sq_off.ring_mask);
    requests[at] = (struct io_uring_sqe){
        .opcode = IORING_OP_RECV, .fd = fd, .ioprio = IORING_RECV_MULTISHOT, .flags = IOSQE_BUFFER_SELECT, .buf_group = GROUP};
    word(params.sq_off.array)[at] = at;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (enter(1, 0) < 0) fail("io_uring_enter");
}

static int uring_receive(int spin) {
    uint32_t *head = word(params.cq_off.head), mask = *word(params.cq_off.ring_mask);
    uint32_t end = __atomic_load_n(word(params.cq_off.tail), __ATOMIC_ACQUIRE);
    if (*head == end) {
        /* the kernel fills completions in when this thread enters it */
        enter(0, !spin);
        return 0;
    }
    const struct io_uring_cqe *done = (void *)(queue + params.cq_off.cqes);
    int frames = 0, again = 0;
    for (; *head != end; __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE)) {
        const struct io_uring_cqe *cqe = &done[*head & mask];
        if (cqe->flags & IORING_CQE_F_BUFFER) give(cqe->flags >> IORING_CQE_BUFFER_SHIFT), frames++;
        again |= !(cqe->flags & IORING_CQE_F_MORE);
    }
    if (again) ask();
    return frames;
}

struct link open_uring(const struct options *o) {
    fd = packet_socket(o);
    bind_packet(fd, o);
    params.flags = IORING_SETUP_CQSIZE | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN;
    params.cq_entries = ENTRIES;
    ring = syscall(SYS_io_uring_setup, 8, &params);
    if (ring < 0) fail("io_uring");
    size_t bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    queue = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    requests = mmap(NULL, params.sq_entries * sizeof *requests, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    given = mmap(NULL, BUFFERS * sizeof(struct io_uring_buf), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    buffers = mmap(NULL, (size_t)BUFFERS * BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (queue == MAP_FAILED || requests == MAP_FAILED || given == MAP_FAILED || buffers == MAP_FAILED) fail("mmap of io_uring");
    struct io_uring_buf_reg group = {.ring_addr = (uintptr_t)given, .ring_entries = BUFFERS, .bgid = GROUP};
    if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_PBUF_RING, &group, 1)) fail("buffers of io_uring");
    for (int i = 0; i < BUFFERS; i++) give(i);
    ask();
    return (struct link){0, uring_receive};
}
