#include "write.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "offload.h"

enum { BTH = 12, RETH = 16, IMMEDIATE = 4, AETH = 4, ICRC = 4 };
enum { FIRST = 0x06, MIDDLE = 0x07, LAST = 0x08, ONLY = 0x0a, SEND_ONLY_IMM = 0x05, ACKNOWLEDGE = 0x11 };
/* What bench/workers/rdma.ts understands as the beginning and the end of a run. */
enum { BEGIN = 1, END = 2 };
enum { PSN_MASK = 0xffffff, FILLER = 0x5a };
/* Without an ACK for so long, packets are sent again. */
enum { TIMEOUT_NS = 10000000 };

static const struct options *options;
static int mtu, per_message;
/* Counts of packets; the low 24 bits are the PSN. */
static uint64_t next, acknowledged, most_sent;
static uint32_t say; /* the immediate of the next packet, which is a SEND then; 0 = a packet of a WRITE */
static uint64_t first_write;
static uint16_t identification;
static int has_nak;

/* Returns the ICRC of a frame whose UDP payload has `bytes` without the ICRC (IBTA, annex A17). */
static uint32_t icrc_of(const uint8_t *frame, int bytes) {
    uint8_t masked[8 + 28 + BTH];
    memset(masked, 0xff, 8);
    memcpy(masked + 8, frame + 14, 28 + BTH);
    uint8_t *ip = masked + 8, *udp = ip + 20, *bth = udp + 8;
    ip[1] = ip[8] = ip[10] = ip[11] = udp[6] = udp[7] = bth[4] = 0xff;
    uint32_t crc = crc32(0, masked, sizeof masked);
    const uint8_t *rest = frame + HEADERS + BTH;
    bytes -= BTH;
    /* the fast method takes multiples of 256 bytes, and a register that is not complemented */
    int few = offload_name(0) ? bytes % 256 : bytes;
    crc = crc32(crc, rest, few);
    return few < bytes ? ~offload_crc(0, ~crc, rest + few, bytes - few) : crc;
}

static int fill(uint8_t *frame) {
    uint64_t number = next++;
    if (next > most_sent) most_sent = next;
    int place = (number - first_write) % per_message, is_first = place == 0, is_last = place == per_message - 1;
    uint8_t *bth = frame + HEADERS, *after = bth + BTH;
    /* what an earlier packet in this memory had elsewhere */
    memset(after, FILLER, RETH), memset(after + mtu, FILLER, RETH + ICRC);
    int bytes = BTH;
    if (say) {
        bth[0] = SEND_ONLY_IMM, put32(after, say);
        bytes += IMMEDIATE;
    } else {
        bth[0] = is_first && is_last ? ONLY : is_first ? FIRST : is_last ? LAST : MIDDLE;
        if (is_first) {
            put32(after, options->address >> 32), put32(after + 4, options->address);
            put32(after + 8, options->rkey), put32(after + 12, options->message);
        }
        bytes += (is_first ? RETH : 0) + mtu;
    }
    bth[1] = 0x40, put16(bth + 2, 0xffff), put32(bth + 4, options->qpn);
    put32(bth + 8, (say || is_last ? 1u << 31 : 0) | (number & PSN_MASK));

    uint8_t *ip = frame + 14, *udp = ip + 20;
    ip[1] = 2, put16(ip + 2, 28 + bytes + ICRC), put16(ip + 4, ++identification);
    put16(ip + 10, 0), put16(ip + 10, checksum(ip, 20));
    put16(udp, 0xfa4f), put16(udp + 4, 8 + bytes + ICRC);
    uint32_t icrc = icrc_of(frame, bytes);
    memcpy(frame + HEADERS + bytes, &icrc, sizeof icrc);
    return HEADERS + bytes + ICRC;
}

static void see(const uint8_t *frame, int bytes) {
    const uint8_t *bth = frame + HEADERS;
    if (bytes < HEADERS + BTH + AETH + ICRC || bth[0] != ACKNOWLEDGE) return;
    uint32_t psn = bth[9] << 16 | bth[10] << 8 | bth[11];
    int kind = bth[BTH] >> 5, code = bth[BTH] & 0x1f;
    if (kind == 3 && code != 0) errno = EPROTO, fail("the other end sent a NAK that is none for a sequence error");
    /* packets that a NAK is about are not acknowledged by it */
    uint64_t until = acknowledged + ((psn + (kind == 0) - acknowledged) & PSN_MASK);
    if (until <= most_sent) acknowledged = until;
    has_nak |= kind != 0;
}

static const struct content content = {fill, see};

const struct content *write_packets(const struct options *o) {
    options = o;
    mtu = o->bytes - BTH - RETH - ICRC, per_message = o->message / mtu;
    return &content;
}

/* Goes on where the other end is, after a NAK or when nothing was acknowledged for long. */
static void go_back_if_due(uint64_t t) {
    static uint64_t seen, since;
    if (acknowledged != seen || acknowledged == next) seen = acknowledged, since = t;
    if (!has_nak && t - since < TIMEOUT_NS) return;
    next = acknowledged, has_nak = 0, since = t;
}

static void say_and_wait(const struct link *link, uint32_t what) {
    uint64_t number = next, until = now() + 5000000000ull;
    while (acknowledged <= number) {
        uint64_t t = now();
        if (t > until) errno = ETIMEDOUT, fail("no answer from the other end");
        if (next == number) say = what, link->send(1), say = 0;
        link->receive(1);
        go_back_if_due(t);
    }
}

void write_messages(const struct link *link, const struct options *o) {
    say_and_wait(link, BEGIN);
    first_write = next;
    double cpu = cpu_seconds();
    uint64_t from = now() + o->warm * 1000000ull, at_from = 0, began = 0, ended = 0;
    for (uint64_t t = now();; t = now()) {
        int is_warm = acknowledged >= (uint64_t)o->warm_frames || t >= from + 1000000000ull;
        if (!began && t >= from && is_warm) began = t, at_from = acknowledged;
        if (began && !ended && t >= began + o->ms * 1000000ull) {
            ended = t;
            print_window(acknowledged - at_from, (ended - began) * 1e-9, acknowledged - first_write, cpu_seconds() - cpu);
        }
        /* the last message must be whole */
        if (ended && acknowledged == next && (next - first_write) % per_message == 0) break;
        if (ended && t - ended > 5000000000ull) errno = ETIMEDOUT, fail("the last messages are not acknowledged");
        uint64_t room = acknowledged + o->window - next, left = per_message - (next - first_write) % per_message;
        if (ended) room = left < (uint64_t)per_message && left < room ? left : next < most_sent ? room : 0;
        if (room) link->send(room);
        link->receive(1);
        go_back_if_due(t);
    }
    say_and_wait(link, END);
}
