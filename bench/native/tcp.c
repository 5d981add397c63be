/* Plain TCP: a ping-pong by `tcp serve` and `tcp ping`, one direction by `tcp sink` and `tcp flood`. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <poll.h>
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

/* Waits for the kernel's notices that it has sent the memory of earlier calls.
   @return the number of these calls, -1 when the peer is gone */
static int take_notices(int fd) {
    struct pollfd noticed = {fd, 0, 0};
    poll(&noticed, 1, -1);
    if (noticed.revents & POLLHUP) return -1;
    for (int taken = 0;;) {
        char control[2 * CMSG_SPACE(sizeof(struct sock_extended_err))];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(fd, &message, MSG_ERRQUEUE) < 0) return taken;
        const struct sock_extended_err *notice = (void *)CMSG_DATA(CMSG_FIRSTHDR(&message));
        if (notice->ee_origin == SO_EE_ORIGIN_ZEROCOPY) taken += notice->ee_data - notice->ee_info + 1;
    }
}

/* Sends until the peer is gone. With `zerocopy` the kernel sends from our memory, of `window` calls at most. */
static void flood(int fd, const struct options *o, char *data) {
    int on = 1, held = 0;
    double cpu = cpu_seconds();
    if (o->zerocopy && setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on)) fail("SO_ZEROCOPY");
    for (int sent = 0;; sent %= o->bytes) {
        ssize_t n = send(fd, data + sent, o->bytes - sent, MSG_NOSIGNAL | (o->zerocopy ? MSG_ZEROCOPY : 0));
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) break;
        if (n < 0 && errno != ENOBUFS) fail("send");
        if (n > 0) sent += n, held += o->zerocopy;
        if (n > 0 && held < o->window) continue;
        int taken = take_notices(fd);
        if (taken < 0) break;
        held -= taken;
    }
    print_window(0, 0, 0, cpu_seconds() - cpu);
}

/* Receives, and prints the messages of the window, all messages, and the CPU time of all. */
static void sink(int fd, const struct options *o, char *data) {
    uint64_t bytes = 0, before = 0, began = 0, from = now() + o->warm * 1000000ull, ended = 0;
    double cpu = cpu_seconds();
    while (!began || ended < began + o->ms * 1000000ull) {
        ssize_t n = recv(fd, data, o->bytes, 0);
        if (n <= 0) fail("recv");
        bytes += n;
        ended = now();
        int is_warm = bytes >= (uint64_t)o->warm_frames * o->bytes || ended >= from + 1000000000ull;
        if (!began && ended >= from && is_warm) began = ended, before = bytes;
    }
    print_window((bytes - before) / o->bytes, (ended - began) * 1e-9, bytes / o->bytes, cpu_seconds() - cpu);
}

static void ping(int fd, const struct options *o, char *data) {
    struct times times = {0};
    double cpu = cpu_seconds();
    uint64_t from = now() + o->warm * 1000000ull, until = from + o->ms * 1000000ull;
    for (uint64_t begin = now(); begin < until;) {
        if (send(fd, data, o->bytes, 0) < 0 || !receive_all(fd, data, o->bytes, o->spin)) fail("ping");
        uint64_t end = now();
        if (begin >= from) note_time(&times, end - begin);
        begin = end;
    }
    print_times(&times, cpu_seconds() - cpu);
}

static void serve(int fd, const struct options *o, char *data) {
    struct times none = {0};
    double cpu = cpu_seconds();
    while (receive_all(fd, data, o->bytes, o->spin))
        if (send(fd, data, o->bytes, MSG_NOSIGNAL) < 0) break;
    print_times(&none, cpu_seconds() - cpu);
}

int main(int argc, char **argv) {
    const char *words[2];
    struct options o = parse_options(argc, argv, words);
    int is_ping = !strcmp(words[0], "ping"), is_flood = !strcmp(words[0], "flood"), is_sink = !strcmp(words[0], "sink");
    char *data = calloc(1, o.bytes);
    int fd = connected(&o, !is_ping && !is_flood);
    if (is_ping) ping(fd, &o, data);
    else if (is_flood) flood(fd, &o, data);
    else if (is_sink) sink(fd, &o, data);
    else serve(fd, &o, data);
}
