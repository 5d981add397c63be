#include "eventfd.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cerrno>

#include "clock.h"
#include "waits.h"

int OpenEventfd() {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

void SignalEventfd(int fd) {
  const uint64_t one = 1;
  while (write(fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void ClearEventfd(int fd) {
  uint64_t count;
  while (read(fd, &count, sizeof count) < 0 && errno == EINTR) {
  }
}

void WaitForEventfd(int fd, int other, int64_t nanoseconds) {
  pollfd fds[2] = {{fd, POLLIN, 0}, {other, POLLIN, 0}};
  const timespec limit = TimeSpec(nanoseconds);
  if (ppoll(fds, 2, &limit, nullptr) > 0 && (fds[0].revents & POLLIN)) ClearEventfd(fd);
  endedWaits++;
}
