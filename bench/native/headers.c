/* The headers of frames: Ethernet, IPv4 and UDP. */
#include "headers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

uint16_t checksum(const uint8_t *at, int bytes) {
    uint32_t sum = 0;
    for (int i = 0; i < bytes; i += 2) sum += at[i] << 8 | at[i + 1];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

void put16(uint8_t *at, uint16_t value) { at[0] = value >> 8, at[1] = value; }

void put32(uint8_t *at, uint32_t value) { put16(at, value >> 16), put16(at + 2, value); }

static void write_mac(uint8_t *at, const char *text) {
    if (sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", at, at + 1, at + 2, at + 3, at + 4, at + 5) != 6) errno = EINVAL, fail(text);
}

void write_headers(uint8_t *frame, const struct options *o, int payload) {
    memset(frame, 0, HEADERS);
    write_mac(frame, o->dest_mac), write_mac(frame + 6, o->source_mac);
    uint8_t *ip = frame + 14, *udp = ip + 20;
    put16(frame + 12, 0x0800);
    ip[0] = 0x45, ip[6] = 0x40, ip[8] = 64, ip[9] = 17;
    put16(ip + 2, 28 + payload);
    inet_pton(AF_INET, o->local, ip + 12), inet_pton(AF_INET, o->peer, ip + 16);
    put16(ip + 10, checksum(ip, 20));
    put16(udp, o->port), put16(udp + 2, o->port), put16(udp + 4, 8 + payload);
}
