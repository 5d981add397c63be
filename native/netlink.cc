// One netlink request and its whole reply, as bytes. src/link/netlink.ts encodes and decodes the messages.
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <napi.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <cerrno>
#include <cstring>
#include <vector>

#include "fds.h"
#include "frames.h"

namespace {

/// Returns whether the reply ends within these bytes: with NLMSG_DONE, or with the acknowledgement of a single request.
bool Ends(const uint8_t* bytes, size_t length) {
  while (length >= sizeof(nlmsghdr)) {
    nlmsghdr header;
    memcpy(&header, bytes, sizeof header);
    if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR) return true;
    size_t step = NLMSG_ALIGN(header.nlmsg_len);
    if (header.nlmsg_len < sizeof header || step > length) return false;
    bytes += step;
    length -= step;
  }
  return false;
}

int Exchange(int protocol, const uint8_t* request, size_t length, std::vector<uint8_t>& answer) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
  if (fd < 0) return -errno;
  // The kernel replies before sendto returns. The timeout is for the case that it does not.
  const timeval limit{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  int result = 0;
  if (sendto(fd, request, length, 0, reinterpret_cast<sockaddr*>(&kernel), sizeof kernel) < 0) result = -errno;
  for (bool ended = false; result == 0 && !ended;) {
    uint8_t part[32768];
    ssize_t received = recv(fd, part, sizeof part, 0);
    if (received <= 0) {
      result = received == 0 ? -EIO : -errno;
      break;
    }
    answer.insert(answer.end(), part, part + received);
    ended = Ends(part, static_cast<size_t>(received));
  }
  CloseFd(fd);
  return result;
}

// netlinkExchange(protocol, request): bytes of the reply, or -errno
Napi::Value Call(const Napi::CallbackInfo& info) {
  auto request = info[1].As<Napi::Uint8Array>();
  std::vector<uint8_t> answer;
  int result = Exchange(info[0].As<Napi::Number>(), request.Data(), request.ByteLength(), answer);
  if (result < 0) return Napi::Number::New(info.Env(), result);
  auto bytes = Napi::Uint8Array::New(info.Env(), answer.size());
  if (!answer.empty()) memcpy(bytes.Data(), answer.data(), answer.size());
  return bytes;
}

// netlinkListen(groups): a socket with the notifications of these groups (RTMGRP_*), or -errno
Napi::Value Listen(const Napi::CallbackInfo& info) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return Napi::Number::New(info.Env(), -errno);
  sockaddr_nl own{};
  own.nl_family = AF_NETLINK;
  own.nl_groups = info[0].As<Napi::Number>();
  int result = fd;
  if (bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0) {
    result = -errno;
    CloseFd(fd);
  }
  return OwnFd(info.Env(), result);
}

// netlinkReceive(fd): the bytes of the oldest notification, or -errno: EAGAIN for none, ENOBUFS if some were lost
Napi::Value Receive(const Napi::CallbackInfo& info) {
  const int fd = info[0].As<Napi::Number>();
  uint8_t part[32768];
  ssize_t received;
  do received = recv(fd, part, sizeof part, 0);
  while (received < 0 && errno == EINTR);
  if (received < 0) return Napi::Number::New(info.Env(), -errno);
  auto bytes = Napi::Uint8Array::New(info.Env(), static_cast<size_t>(received));
  if (received > 0) memcpy(bytes.Data(), part, static_cast<size_t>(received));
  return bytes;
}

}  // namespace

Napi::Function NetlinkExchange(Napi::Env env) { return Napi::Function::New(env, Call, "netlinkExchange"); }
Napi::Function NetlinkListen(Napi::Env env) { return Napi::Function::New(env, Listen, "netlinkListen"); }
Napi::Function NetlinkReceive(Napi::Env env) { return Napi::Function::New(env, Receive, "netlinkReceive"); }
