// One question to netlink and its whole answer, as bytes. Messages are written and read in src/link/netlink.ts.
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

/// Whether the answer ends within these bytes: with NLMSG_DONE, or with the acknowledgement of a single request.
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
  // The kernel answers before sendto returns; the limit is for the day it does not.
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

// netlinkExchange(protocol, request): the answer's bytes, or -errno
Napi::Value Call(const Napi::CallbackInfo& info) {
  auto request = info[1].As<Napi::Uint8Array>();
  std::vector<uint8_t> answer;
  int result = Exchange(info[0].As<Napi::Number>(), request.Data(), request.ByteLength(), answer);
  if (result < 0) return Napi::Number::New(info.Env(), result);
  auto bytes = Napi::Uint8Array::New(info.Env(), answer.size());
  if (!answer.empty()) memcpy(bytes.Data(), answer.data(), answer.size());
  return bytes;
}

// netlinkListen(): a socket that becomes readable when interfaces or addresses change, or -errno
Napi::Value Listen(const Napi::CallbackInfo& info) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return Napi::Number::New(info.Env(), -errno);
  sockaddr_nl own{};
  own.nl_family = AF_NETLINK;
  own.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  int result = fd;
  if (bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0) {
    result = -errno;
    CloseFd(fd);
  }
  return HandOut(info.Env(), result);
}

// netlinkDrain(fd): forgets all that has come. What it said is asked for anew, so that nothing lost does harm.
void Drain(const Napi::CallbackInfo& info) {
  const int fd = info[0].As<Napi::Number>();
  uint8_t byte;
  while (recv(fd, &byte, sizeof byte, 0) >= 0 || errno == ENOBUFS || errno == EINTR) {
  }
}

}  // namespace

Napi::Function NetlinkExchange(Napi::Env env) { return Napi::Function::New(env, Call, "netlinkExchange"); }
Napi::Function NetlinkListen(Napi::Env env) { return Napi::Function::New(env, Listen, "netlinkListen"); }
Napi::Function NetlinkDrain(Napi::Env env) { return Napi::Function::New(env, Drain, "netlinkDrain"); }
