// Eventfds (eventfd(2)), by which one thread wakes another one that sleeps in ppoll(2) or in an event loop. Any thread
// may use the file descriptor; the one that opened it owns it.
#include <napi.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cerrno>
#include <cmath>

#include "core/waits.h"
#include "exports.h"
#include "fds.h"

namespace {

void Drain(int fd) {
  uint64_t count;
  while (read(fd, &count, sizeof count) < 0 && errno == EINTR) {
  }
}

// eventfdOpen(): a file descriptor or -errno
Napi::Value Open(const Napi::CallbackInfo& info) {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return OwnFd(info.Env(), fd < 0 ? -errno : fd);
}

// eventfdSignal(fd)
void Signal(const Napi::CallbackInfo& info) {
  const int fd = info[0].As<Napi::Number>();
  const uint64_t one = 1;
  while (write(fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

// eventfdClear(fd): resets the counter
void Clear(const Napi::CallbackInfo& info) { Drain(info[0].As<Napi::Number>()); }

// eventfdWait(fd, other, nanoseconds): blocks until the eventfd is signalled, the other file descriptor is readable, or
// the time is over
void Wait(const Napi::CallbackInfo& info) {
  pollfd fds[2] = {{info[0].As<Napi::Number>(), POLLIN, 0}, {info[1].As<Napi::Number>(), POLLIN, 0}};
  const double nanoseconds = std::fmax(info[2].As<Napi::Number>().DoubleValue(), 0);
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(nanoseconds / 1e9);
  limit.tv_nsec = static_cast<long>(nanoseconds - static_cast<double>(limit.tv_sec) * 1e9);
  if (ppoll(fds, 2, &limit, nullptr) > 0 && (fds[0].revents & POLLIN)) Drain(fds[0].fd);
  endedWaits++;
}

}  // namespace

void DefineEventfds(Napi::Object exports) {
  exports.Set("eventfdOpen", Napi::Function::New<Open>(exports.Env(), "eventfdOpen"));
  exports.Set("eventfdSignal", Napi::Function::New<Signal>(exports.Env(), "eventfdSignal"));
  exports.Set("eventfdClear", Napi::Function::New<Clear>(exports.Env(), "eventfdClear"));
  exports.Set("eventfdWait", Napi::Function::New<Wait>(exports.Env(), "eventfdWait"));
}
