/* A plain TCP ping-pong: `tcp serve` and `tcp ping`. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

static int connected(const struct options *o, int serves) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(o->port)};
    inet_pton(AF_INET, serves ? o->local : o->peer, &address.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (serves) {
        int listener = fd;
        if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1)) fail("listen");
        tell_ready();
        fd = accept(listener, NULL, NULL);
        close(listener);
    } else if (connect(fd, (void *)&address, sizeof address)) {
        fail("connect");
    }
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on)) fail("accept");
    return fd;
}

/* @return 0 when the peer is gone */
static int receive_all(int fd, char *data, int bytes, int spin) {
    for (int got = 0; got < bytes;) {
        ssize_t n = recv(fd, data + got, bytes - got, spin ? MSG_DONTWAIT : 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) return 0;
        if (n < 0 && errno != EAGAIN) fail("recv");
        if (n > 0) got += n;
    }
    return 1;
}

int main(int argc, char **argv) {
    const char *words[2];
    struct options o = parse_options(argc, argv, words);
    int serves = !strcmp(words[0], "serve");
    char *data = calloc(1, o.bytes);
    int fd = connected(&o, serves);
    double cpu = cpu_seconds();
    struct times times = {0};
    if (serves) {
        while (receive_all(fd, data, o.bytes, o.spin))
            if (send(fd, data, o.bytes, MSG_NOSIGNAL) < 0) break;
    } else {
        uint64_t from = now() + o.warm * 1000000ull, until = from + o.ms * 1000000ull;
        for (uint64_t begin = now(); begin < until;) {
            if (send(fd, data, o.bytes, 0) < 0 || !receive_all(fd, data, o.bytes, o.spin)) fail("ping");
            uint64_t end = now();
            if (begin >= from) note_time(&times, end - begin);
            begin = end;
        }
    }
    print_times(&times, cpu_seconds() - cpu);
}
