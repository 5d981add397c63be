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

WaitEnd WaitForEventfd(int fd, int other, int64_t nanoseconds) {
  // ppoll ignores a negative file descriptor
  pollfd fds[2] = {{fd, POLLIN, 0}, {other, POLLIN, 0}};
  const timespec limit = TimeSpec(nanoseconds);
  const int ready = ppoll(fds, 2, &limit, nullptr);
  endedWaits++;
  if (ready <= 0) return WaitEnd::kTimeout;
  if ((fds[0].revents & POLLIN) == 0) return WaitEnd::kOther;
  ClearEventfd(fd);
  return WaitEnd::kSignal;
}
