#include "write.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "headers.h"
#include "offload.h"

enum { BTH = 12, RETH = 16, IMMEDIATE = 4, AETH = 4, ICRC = 4 };
enum { FIRST = 0x06, MIDDLE = 0x07, LAST = 0x08, ONLY = 0x0a, SEND_ONLY_IMM = 0x05, ACKNOWLEDGE = 0x11 };
/* What bench/workers/rdma.ts understands as the beginning and the end of a run. */
enum { BEGIN = 1, END = 2 };
enum { PSN_MASK = 0xffffff, FILLER = 0x5a };
/* Without an ACK for so long, packets are sent again. */
enum { TIMEOUT_NS = 10000000 };

/* The number of the queue pair that the acknowledgements of the first target go to, and the next ones of the others. */
enum { OWN_QPN = 0x45 };

/* A queue pair of this end. */
static struct requester {
    const struct target *target;
    /* Counts of packets; the low 24 bits are the PSN. */
    uint64_t next, acknowledged, most_sent;
    uint64_t first_write;
    int has_nak;
    /* where it was when it last made progress, and when that was */
    uint64_t seen, since;
} requesters[MOST_TARGETS];
static int count;
static struct requester *current = requesters;
#define EACH(r) struct requester *r = requesters; r < requesters + count; r++

static int mtu, per_message;
static int takes_turns; /* whether each message goes to another queue pair than the one before */
static uint32_t say; /* the immediate of the next packet, which is a SEND then; 0 = a packet of a WRITE */
static uint16_t identification;

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

/* Returns whether a message ends before packet `number`. */
static int is_between(const struct requester *r, uint64_t number) { return (number - r->first_write) % per_message == 0; }

/* Returns the requester after this one; after the last, the first. */
static struct requester *after(struct requester *r) { return r + 1 < requesters + count ? r + 1 : requesters; }

static int fill(uint8_t *frame) {
    struct requester *r = current;
    uint64_t number = r->next++;
    if (r->next > r->most_sent) r->most_sent = r->next;
    int is_first = is_between(r, number), is_last = is_between(r, number + 1);
    uint8_t *bth = frame + HEADERS, *rest = bth + BTH;
    /* what an earlier packet in this memory had elsewhere */
    memset(rest, FILLER, RETH), memset(rest + mtu, FILLER, RETH + ICRC);
    int bytes = BTH;
    if (say) {
        bth[0] = SEND_ONLY_IMM, put32(rest, say);
        bytes += IMMEDIATE;
    } else {
        bth[0] = is_first && is_last ? ONLY : is_first ? FIRST : is_last ? LAST : MIDDLE;
        if (is_first) {
            put32(rest, r->target->address >> 32), put32(rest + 4, r->target->address);
            put32(rest + 8, r->target->rkey), put32(rest + 12, mtu * per_message);
        }
        bytes += (is_first ? RETH : 0) + mtu;
    }
    bth[1] = 0x40, put16(bth + 2, 0xffff), put32(bth + 4, r->target->qpn);
    put32(bth + 8, (say || is_last ? 1u << 31 : 0) | (number & PSN_MASK));

    uint8_t *ip = frame + 14, *udp = ip + 20;
    ip[1] = 2, put16(ip + 2, 28 + bytes + ICRC), put16(ip + 4, ++identification);
    put16(ip + 10, 0), put16(ip + 10, checksum(ip, 20));
    put16(udp, 0xfa4f), put16(udp + 4, 8 + bytes + ICRC);
    uint32_t icrc = icrc_of(frame, bytes);
    memcpy(frame + HEADERS + bytes, &icrc, sizeof icrc);
    if (takes_turns && is_last) current = after(current);
    return HEADERS + bytes + ICRC;
}

static void see(const uint8_t *frame, int bytes) {
    const uint8_t *bth = frame + HEADERS;
    if (bytes < HEADERS + BTH + AETH + ICRC || bth[0] != ACKNOWLEDGE) return;
    struct requester *r = requesters + ((bth[5] << 16 | bth[6] << 8 | bth[7]) - OWN_QPN);
    if (r < requesters || r >= requesters + count) return;
    uint32_t psn = bth[9] << 16 | bth[10] << 8 | bth[11];
    int kind = bth[BTH] >> 5, code = bth[BTH] & 0x1f;
    if (kind == 3 && code != 0) errno = EPROTO, fail("the other end sent a NAK that is none for a sequence error");
    /* packets that a NAK is about are not acknowledged by it */
    uint64_t until = r->acknowledged + ((psn + (kind == 0) - r->acknowledged) & PSN_MASK);
    if (until <= r->most_sent) r->acknowledged = until;
    r->has_nak |= kind != 0;
}

static const struct content content = {fill, see};

const struct content *write_packets(const struct options *o) {
    mtu = o->bytes - BTH - RETH - ICRC, per_message = o->message / mtu;
    /* a flood needs no queue pair */
    count = o->target_count ? o->target_count : 1;
    for (int i = 0; i < count; i++) requesters[i].target = &o->targets[i];
    takes_turns = 1;
    return &content;
}

/* Goes on where the other end is, after a NAK or when nothing was acknowledged for long. */
static void go_back_if_due(struct requester *r, uint64_t t) {
    if (r->acknowledged != r->seen || r->acknowledged == r->next) r->seen = r->acknowledged, r->since = t;
    if (!r->has_nak && t - r->since < TIMEOUT_NS) return;
    r->next = r->acknowledged, r->has_nak = 0, r->since = t;
}

static void say_and_wait(const struct link *link, uint32_t what) {
    for (EACH(r)) {
        uint64_t number = r->next, until = now() + 5000000000ull;
        current = r;
        while (r->acknowledged <= number) {
            uint64_t t = now();
            if (t > until) errno = ETIMEDOUT, fail("no answer from the other end");
            if (r->next == number) say = what, link->send(1), say = 0;
            link->receive(1);
            go_back_if_due(r, t);
        }
    }
}

static uint64_t packets_acknowledged(void) {
    uint64_t all = 0;
    for (EACH(r)) all += r->acknowledged - r->first_write;
    return all;
}

/* Returns the packets that a requester may send now, if it may begin messages or only end the last one. */
static uint64_t room_of(const struct requester *r, uint64_t window, int is_over) {
    uint64_t room = r->acknowledged + window - r->next, left = per_message - (r->next - r->first_write) % per_message;
    if (!is_over) return room;
    if (left < (uint64_t)per_message) return left < room ? left : room;
    return r->next < r->most_sent ? room : 0;
}

void write_messages(const struct link *link, const struct options *o) {
    takes_turns = 0;
    say_and_wait(link, BEGIN);
    uint64_t window = o->window / count;
    for (EACH(r)) r->first_write = r->next;
    double cpu = cpu_seconds();
    uint64_t from = now() + o->warm * 1000000ull, at_from = 0, began = 0, ended = 0;
    for (int is_done = 0; !is_done;) {
        uint64_t t = now(), arrived = packets_acknowledged();
        int is_warm = arrived >= (uint64_t)o->warm_frames || t >= from + 1000000000ull;
        if (!began && t >= from && is_warm) began = t, at_from = arrived;
        if (began && !ended && t >= began + o->ms * 1000000ull) {
            ended = t;
            print_window(arrived - at_from, (ended - began) * 1e-9, arrived, cpu_seconds() - cpu);
        }
        if (ended && t - ended > 5000000000ull) errno = ETIMEDOUT, fail("the last messages are not acknowledged");
        is_done = ended != 0;
        for (EACH(r)) {
            uint64_t room = room_of(r, window, ended != 0);
            current = r;
            if (room) link->send(room);
            link->receive(1);
            go_back_if_due(r, t);
            /* the last message must be whole */
            if (r->acknowledged != r->next || !is_between(r, r->next)) is_done = 0;
        }
    }
    say_and_wait(link, END);
}
