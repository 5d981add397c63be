/*
 * PID 1 of the guest: mounts file systems, loads the modules named in /etc/modules, then runs commands for the
 * host, any number at once, over one virtio-serial port. With the arguments `port FD` it runs on the host, in
 * namespaces of its own, and FD is the file descriptor of the port. A kernel gives PID 1 the words of its command line
 * that it does not know.
 *
 * Both directions carry frames: struct frame (little endian), then `length` bytes.
 *   host -> guest   RUN    argv, each string ended by NUL; `channel` is an unused number that the host chooses
 *                   INPUT  bytes for standard input; none = end of input
 *                   KILL   u32 signal, sent to the command's process group
 *   guest -> host   READY  once, when commands are accepted
 *                   OUT, ERR  output of the command
 *                   EXIT   u32: exit code, or 128 + signal; the last frame of its channel
 * The agent need not detect a hang-up: the virtual machine ends with the host process at the other end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUN = 1, INPUT, KILL, READY, OUT, ERR, EXIT };
enum { MAX_COMMANDS = 64, MAX_ARGS = 256, CHUNK = 65536 };

struct frame {
    uint32_t channel, type, length;
};

struct command {
    pid_t pid; /* 0 = free */
    uint32_t channel;
    int in, out, err; /* -1 = closed */
    char *pending;    /* input that the command has not read yet */
    size_t pending_length;
    int in_ended;
};

static struct command commands[MAX_COMMANDS];
static int port;
static char chunk[CHUNK];

static void fatal(const char *what) {
    dprintf(2, "agent: %s: %s\n", what, strerror(errno));
    for (;;) pause();
}

static void write_all(const void *data, size_t length) {
    const char *p = data;
    while (length) {
        ssize_t n = write(port, p, length);
        if (n < 0 && errno != EINTR && errno != EAGAIN) fatal("write to the host");
        if (n > 0) p += n, length -= n;
    }
}

static void answer(uint32_t channel, uint32_t type, const void *data, uint32_t length) {
    struct frame f = {channel, type, length};
    write_all(&f, sizeof f);
    write_all(data, length);
}

static void answer_exit(uint32_t channel, uint32_t status) { answer(channel, EXIT, &status, sizeof status); }

static struct command *find(uint32_t channel) {
    for (struct command *c = commands; c < commands + MAX_COMMANDS; c++)
        if (c->pid && c->channel == channel) return c;
    return NULL;
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void run(uint32_t channel, char *text, uint32_t length) {
    char *argv[MAX_ARGS + 1];
    int argc = 0;
    for (char *p = text; p < text + length && argc < MAX_ARGS; p += strlen(p) + 1) argv[argc++] = p;
    argv[argc] = NULL;
    struct command *c = commands;
    while (c < commands + MAX_COMMANDS && c->pid) c++;
    int in[2], out[2], err[2];
    if (!argc || c == commands + MAX_COMMANDS || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
        answer_exit(channel, 126);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGPIPE, SIG_DFL);
        setsid();
        dup2(in[0], 0), dup2(out[1], 1), dup2(err[1], 2);
        execvp(argv[0], argv);
        dprintf(2, "%s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    close(in[0]), close(out[1]), close(err[1]);
    if (pid < 0) {
        close(in[1]), close(out[0]), close(err[0]);
        answer_exit(channel, 126);
        return;
    }
    fcntl(in[1], F_SETFL, O_NONBLOCK), fcntl(out[0], F_SETFL, O_NONBLOCK), fcntl(err[0], F_SETFL, O_NONBLOCK);
    *c = (struct command){.pid = pid, .channel = channel, .in = in[1], .out = out[0], .err = err[0]};
}

/* Writes pending input to the command, as much as its pipe takes. */
static void feed(struct command *c) {
    while (c->in >= 0 && c->pending_length) {
        ssize_t n = write(c->in, c->pending, c->pending_length);
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) {
            close_fd(&c->in);
            break;
        }
        memmove(c->pending, c->pending + n, c->pending_length -= n);
    }
    if (c->in < 0) c->pending_length = 0;
    if (c->in_ended && !c->pending_length) close_fd(&c->in);
}

static void input(struct command *c, const char *data, uint32_t length) {
    if (!length) c->in_ended = 1;
    if (length && c->in >= 0) {
        c->pending = realloc(c->pending, c->pending_length + length);
        if (!c->pending) fatal("memory for input");
        memcpy(c->pending + c->pending_length, data, length);
        c->pending_length += length;
    }
    feed(c);
}

/* Forwards the output of a command, at most one pipe full, so that no command delays the others. */
static void drain(struct command *c, int *fd, uint32_t type) {
    if (*fd < 0) return;
    ssize_t n = read(*fd, chunk, CHUNK);
    if (n > 0) answer(c->channel, type, chunk, n);
    if (n == 0) close_fd(fd);
}

static void reap(int signals) {
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) > 0) continue;
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (struct command *c = commands; c < commands + MAX_COMMANDS; c++)
            if (c->pid == pid) {
                drain(c, &c->out, OUT), drain(c, &c->err, ERR);
                close_fd(&c->out), close_fd(&c->err), close_fd(&c->in);
                free(c->pending);
                c->pid = 0;
                answer_exit(c->channel, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
            }
}

static void take(const struct frame *f, char *data) {
    struct command *c = find(f->channel);
    if (f->type == RUN && !c) run(f->channel, data, f->length);
    else if (f->type == INPUT && c) input(c, data, f->length);
    else if (f->type == KILL && c && f->length == 4) kill(-c->pid, *(uint32_t *)data);
}

/* Reads from the host and executes every complete frame. */
static void listen_to_host(void) {
    static char *buffer;
    static size_t room, filled;
    if (room - filled < CHUNK && !(buffer = realloc(buffer, room += CHUNK))) fatal("memory for a frame");
    ssize_t n = read(port, buffer + filled, CHUNK - 1); /* one byte stays free for a terminating NUL */
    if (n == 0) exit(0); /* on the host, the other end of the socket has gone */
    if (n < 0) return;
    filled += n;
    size_t at = 0;
    struct frame f;
    while (filled - at >= sizeof f) {
        memcpy(&f, buffer + at, sizeof f);
        if (filled - at - sizeof f < f.length) break;
        char *data = buffer + at + sizeof f, next = data[f.length];
        data[f.length] = 0; /* ends the last string of an argv, whatever the host sent */
        take(&f, data);
        data[f.length] = next;
        at += sizeof f + f.length;
    }
    memmove(buffer, buffer + at, filled -= at);
}

static void serve(int signals) {
    for (;;) {
        struct pollfd fds[2 + 3 * MAX_COMMANDS] = {{port, POLLIN, 0}, {signals, POLLIN, 0}};
        int n = 2;
        for (struct command *c = commands; c < commands + MAX_COMMANDS; c++) {
            if (!c->pid) continue;
            if (c->out >= 0) fds[n++] = (struct pollfd){c->out, POLLIN, 0};
            if (c->err >= 0) fds[n++] = (struct pollfd){c->err, POLLIN, 0};
            if (c->pending_length) fds[n++] = (struct pollfd){c->in, POLLOUT, 0};
        }
        if (poll(fds, n, -1) < 0) continue;
        if (fds[0].revents & POLLIN) listen_to_host();
        for (struct command *c = commands; c < commands + MAX_COMMANDS; c++) {
            if (!c->pid) continue;
            drain(c, &c->out, OUT), drain(c, &c->err, ERR);
            feed(c);
        }
        if (fds[1].revents) reap(signals);
    }
}

static void mount_at(const char *type, const char *where, const char *options) {
    mkdir(where, 0755);
    if (mount(type, where, type, 0, options)) dprintf(2, "agent: mount %s: %s\n", where, strerror(errno));
}

static void load_modules(void) {
    FILE *list = fopen("/etc/modules", "r");
    char path[512];
    while (list && fgets(path, sizeof path, list)) {
        path[strcspn(path, "\n")] = 0;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST))
            dprintf(2, "agent: load %s: %s\n", path, strerror(errno));
        if (fd >= 0) close(fd);
    }
    if (list) fclose(list);
}

static void set_up(void) {
    mount_at("proc", "/proc", ""), mount_at("sysfs", "/sys", ""), mount_at("devtmpfs", "/dev", "mode=0755");
    mount_at("tmpfs", "/run", "mode=0755"), mount_at("tmpfs", "/tmp", "mode=1777"), mount_at("tmpfs", "/dev/shm", "mode=1777");
    int console = open("/dev/console", O_RDWR);
    for (int fd = 0; console >= 0 && fd < 3; fd++) dup2(console, fd);
    setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1), setenv("HOME", "/root", 1), setenv("LC_ALL", "C", 1);
    struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &unlimited);
    load_modules();
    while ((port = open("/dev/vport0p1", O_RDWR | O_CLOEXEC)) < 0) usleep(5000); /* the device appears with a delay */
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "port")) fcntl(port = atoi(argv[2]), F_SETFD, FD_CLOEXEC);
    else set_up();
    signal(SIGPIPE, SIG_IGN);
    sigset_t child;
    sigemptyset(&child), sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    int signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    answer(0, READY, NULL, 0);
    serve(signals);
}
