// Wakers: how one thread ends another's sleep. An eventfd, which fits both poll and an event loop.
#include <napi.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cerrno>
#include <cmath>

#include "fds.h"

namespace {

void Empty(int fd) {
  uint64_t count;
  while (read(fd, &count, sizeof count) < 0 && errno == EINTR) {
  }
}

// wakerOpen(): a file descriptor or -errno
Napi::Value Open(const Napi::CallbackInfo& info) {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return HandOut(info.Env(), fd < 0 ? -errno : fd);
}

// wakerWake(fd)
void Wake(const Napi::CallbackInfo& info) {
  const int fd = info[0].As<Napi::Number>();
  const uint64_t one = 1;
  while (write(fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

// wakerEmpty(fd): what woke is forgotten
void Forget(const Napi::CallbackInfo& info) { Empty(info[0].As<Napi::Number>()); }

// wakerSleep(fd, other, nanoseconds): until it is woken, until the other file descriptor is readable, or until the time is over
void Sleep(const Napi::CallbackInfo& info) {
  pollfd fds[2] = {{info[0].As<Napi::Number>(), POLLIN, 0}, {info[1].As<Napi::Number>(), POLLIN, 0}};
  const double nanoseconds = std::fmax(info[2].As<Napi::Number>().DoubleValue(), 0);
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(nanoseconds / 1e9);
  limit.tv_nsec = static_cast<long>(nanoseconds - static_cast<double>(limit.tv_sec) * 1e9);
  if (ppoll(fds, 2, &limit, nullptr) > 0 && (fds[0].revents & POLLIN)) Empty(fds[0].fd);
}

}  // namespace

Napi::Function WakerOpen(Napi::Env env) { return Napi::Function::New(env, Open, "wakerOpen"); }
Napi::Function WakerWake(Napi::Env env) { return Napi::Function::New(env, Wake, "wakerWake"); }
Napi::Function WakerEmpty(Napi::Env env) { return Napi::Function::New(env, Forget, "wakerEmpty"); }
Napi::Function WakerSleep(Napi::Env env) { return Napi::Function::New(env, Sleep, "wakerSleep"); }
