/* The links packet and udp: kernel sockets, with as many frames in one call as UDP segmentation offload takes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/udp.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "headers.h"
#include "link.h"

#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

enum { BATCH = 32, VNET = sizeof(struct virtio_net_hdr), BIGGEST = 1 << 16 };

static int fd;
static int payload, segments;
static struct sockaddr_in to;

static struct mmsghdr messages[BATCH];
static struct iovec pieces[BATCH];
static char control[BATCH][CMSG_SPACE(sizeof(int))];

/* Room for one message to send, or for BATCH received ones. */
static uint8_t *buffer;

static void make_room(void) {
    buffer = aligned_alloc(4096, (size_t)BATCH * (BIGGEST + 4096));
    if (!buffer) fail("memory");
    memset(buffer, 0, (size_t)BATCH * (BIGGEST + 4096));
    for (int i = 0; i < BATCH; i++) pieces[i] = (struct iovec){buffer + (size_t)i * (BIGGEST + 4096), BIGGEST + 4096};
}

static void set_buffers(int socket) {
    int bytes = 32 << 20;
    setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
}

static struct sockaddr_in address_of(const char *text, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, text, &address.sin_addr);
    return address;
}

static void filter(int socket, struct sock_filter *program, int length) {
    struct sock_fprog all = {length, program};
    if (setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof all)) fail("filter");
}

static int received(int spin, int has_control) {
    for (int i = 0; i < BATCH; i++) {
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &pieces[i], .msg_iovlen = 1};
        if (has_control) messages[i].msg_hdr.msg_control = control[i], messages[i].msg_hdr.msg_controllen = sizeof control[i];
    }
    if (!spin) {
        struct pollfd readable = {fd, POLLIN, 0};
        if (poll(&readable, 1, WAIT) <= 0) return 0;
    }
    int n = recvmmsg(fd, messages, BATCH, MSG_DONTWAIT, NULL);
    if (n < 0 && errno != EAGAIN) fail("recvmmsg");
    return n < 0 ? 0 : n;
}

static struct mmsghdr outgoing[BATCH];
static struct iovec out;

static void prepare_send(size_t bytes, void *name, int name_bytes) {
    for (int i = 0; i < BATCH; i++)
        outgoing[i].msg_hdr = (struct msghdr){.msg_name = name, .msg_namelen = name_bytes, .msg_iov = &out, .msg_iovlen = 1};
    out.iov_len = bytes;
}

/* Sends frames without segmentation offload: each is a message of its own in one sendmmsg call. */
static int send_each(int count) {
    int n = sendmmsg(fd, outgoing, count < BATCH ? count : BATCH, 0);
    if (n < 0 && errno != ENOBUFS && errno != EAGAIN) fail("sendmmsg");
    return n < 0 ? 0 : n;
}

/* ---- packet ---- */

static int packet_receive(int spin) {
    int n = received(spin, 0), frames = 0;
    for (int i = 0; i < n; i++) {
        const struct virtio_net_hdr *header = pieces[i].iov_base;
        int bytes = messages[i].msg_len - VNET - HEADERS;
        frames += header->gso_type == VIRTIO_NET_HDR_GSO_UDP_L4 ? (bytes + header->gso_size - 1) / header->gso_size : 1;
    }
    return frames;
}

static int packet_send_burst(int count) {
    (void)count;
    ssize_t n = send(fd, buffer, VNET + HEADERS + (size_t)segments * payload, 0);
    if (n < 0 && errno != ENOBUFS && errno != EAGAIN) fail("send");
    return n < 0 ? 0 : segments;
}

static void write_burst(const struct options *o) {
    struct virtio_net_hdr *header = (void *)buffer;
    uint8_t *frame = buffer + VNET, *udp = frame + 34;
    int bytes = segments * payload;
    write_headers(frame, o, bytes);
    header->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    header->gso_type = VIRTIO_NET_HDR_GSO_UDP_L4;
    header->hdr_len = HEADERS;
    header->gso_size = payload;
    header->csum_start = 34, header->csum_offset = 6;
    /* the checksum of the pseudo header, which the kernel completes */
    uint32_t sum = 17 + 8 + bytes;
    for (int i = 26; i < 34; i += 2) sum += frame[i] << 8 | frame[i + 1];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    udp[6] = sum >> 8, udp[7] = sum;
}

/* Binds the port, and drops everything on it, so that the kernel's UDP stack does not process the frames as well.
   Several programs may do so. */
static void hold_port(const struct options *o) {
    int sink = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;
    struct sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    struct sockaddr_in local = address_of(o->local, o->port);
    filter(sink, nothing, 1);
    setsockopt(sink, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    setsockopt(sink, IPPROTO_UDP, UDP_GRO, &on, sizeof on);
    if (bind(sink, (void *)&local, sizeof local)) fail("bind the port");
}

int packet_socket(const struct options *o) {
    hold_port(o);
    int opened = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (opened < 0) fail("packet socket");
    /* only UDP over IPv4 to the port, and only to the queue pair if there is one */
    uint32_t mask = o->target_count ? 0xffffff : 0;
    struct sock_filter only[] = {
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x0800, 0, 8),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 6),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 36), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, o->port, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 46), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, o->targets[0].qpn, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, -1),          BPF_STMT(BPF_RET | BPF_K, 0)};
    filter(opened, only, sizeof only / sizeof *only);
    set_buffers(opened);
    const int on = 1;
    setsockopt(opened, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
    return opened;
}

void bind_packet(int socket, const struct options *o) {
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = if_nametoindex(o->interface)};
    if (bind(socket, (void *)&address, sizeof address)) fail("bind");
}

struct link open_packet(const struct options *o) {
    const int on = 1;
    payload = o->bytes, segments = o->segments;
    make_room();
    fd = packet_socket(o);
    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on);
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on)) fail("PACKET_VNET_HDR");
    bind_packet(fd, o);
    if (segments > 1) {
        write_burst(o);
        return (struct link){packet_send_burst, packet_receive};
    }
    static uint8_t frame[VNET + HEADERS + 9216];
    write_headers(frame + VNET, o, payload);
    out.iov_base = frame;
    prepare_send(VNET + HEADERS + payload, NULL, 0);
    return (struct link){send_each, packet_receive};
}

/* ---- udp ---- */

static int udp_receive(int spin) {
    int n = received(spin, 1), frames = 0;
    for (int i = 0; i < n; i++) {
        int size = 0;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&messages[i].msg_hdr); c; c = CMSG_NXTHDR(&messages[i].msg_hdr, c))
            if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) memcpy(&size, CMSG_DATA(c), sizeof size);
        frames += size ? ((int)messages[i].msg_len + size - 1) / size : 1;
    }
    return frames;
}

static char segment[CMSG_SPACE(sizeof(uint16_t))];

static int udp_send_burst(int count) {
    (void)count;
    ssize_t n = sendmsg(fd, &outgoing[0].msg_hdr, 0);
    if (n < 0 && errno != ENOBUFS && errno != EAGAIN) fail("sendmsg");
    return n < 0 ? 0 : segments;
}

static void ask_for_segments(void) {
    struct msghdr *message = &outgoing[0].msg_hdr;
    message->msg_control = segment, message->msg_controllen = sizeof segment;
    struct cmsghdr *c = CMSG_FIRSTHDR(message);
    c->cmsg_level = IPPROTO_UDP, c->cmsg_type = UDP_SEGMENT, c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
    uint16_t size = payload;
    memcpy(CMSG_DATA(c), &size, sizeof size);
}

struct link open_udp(const struct options *o) {
    const int on = 1, discover = IP_PMTUDISC_DO;
    payload = o->bytes, segments = o->segments;
    make_room();
    to = address_of(o->peer, o->port);
    struct sockaddr_in local = address_of(o->local, o->port);
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    set_buffers(fd);
    setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
    if (setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on)) fail("UDP_GRO");
    if (bind(fd, (void *)&local, sizeof local)) fail("bind");
    static uint8_t data[BIGGEST];
    out.iov_base = data;
    prepare_send((size_t)payload * segments, &to, sizeof to);
    if (segments > 1) ask_for_segments();
    return (struct link){segments > 1 ? udp_send_burst : send_each, udp_receive};
}
