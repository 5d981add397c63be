/* Frames with any content, sent without rxe, as another host on the same network could send them. */
#include "peer.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_FRAME = 9018 };

void do_frame(void) {
    static uint8_t frame[MAX_FRAME];
    char *hex = text("hex");
    size_t length = hex ? strlen(hex) / 2 : 0;
    if (!hex) fail("hex= is missing");
    else if (length > MAX_FRAME) fail("a frame of %zu bytes", length);
    else from_hex(hex, frame, length);
    if (problem[0]) return;
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex("eth0")};
    int s = socket(AF_PACKET, SOCK_RAW, 0);
    if (s < 0 || sendto(s, frame, length, 0, (struct sockaddr *)&to, sizeof to) != (ssize_t)length) refused("sendto a packet socket", errno);
    else printf("{}");
    if (s >= 0) close(s);
}
