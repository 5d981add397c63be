// Netlink messages as bytes. src/link/netlink.ts encodes and decodes them.
#include "core/netlink.h"
#include "arguments.h"
#include "exports.h"
#include "fds.h"

namespace {

/// Room for the longest notification.
constexpr size_t kNotificationBytes = 32768;

Napi::Value BytesOf(Napi::Env env, const uint8_t* from, size_t length) {
  auto bytes = Napi::Uint8Array::New(env, length);
  if (length > 0) memcpy(bytes.Data(), from, length);
  return bytes;
}

// netlinkExchange(protocol, request): bytes of the reply, or -errno
Napi::Value Exchange(const Napi::CallbackInfo& info) {
  const auto request = BytesAt(info, 1);
  std::vector<uint8_t> reply;
  const int result = NetlinkExchange(IntAt(info, 0), request.Data(), request.ByteLength(), reply);
  return result < 0 ? Result(info, result) : BytesOf(info.Env(), reply.data(), reply.size());
}

// netlinkListen(groups): a socket with the notifications of these groups (RTMGRP_*), or -errno
Napi::Value Listen(const Napi::CallbackInfo& info) {
  return OwnFd(info.Env(), NetlinkListen(info[0].As<Napi::Number>()));
}

// netlinkReceive(fd): the bytes of the oldest notification, or -errno: EAGAIN for none, ENOBUFS if some were lost
Napi::Value Receive(const Napi::CallbackInfo& info) {
  uint8_t bytes[kNotificationBytes];
  const int received = NetlinkReceive(IntAt(info, 0), bytes, sizeof bytes);
  return received < 0 ? Result(info, received) : BytesOf(info.Env(), bytes, static_cast<size_t>(received));
}

}  // namespace

void DefineNetlink(Napi::Object exports) {
  exports.Set("netlinkExchange", Napi::Function::New<Exchange>(exports.Env(), "netlinkExchange"));
  exports.Set("netlinkListen", Napi::Function::New<Listen>(exports.Env(), "netlinkListen"));
  exports.Set("netlinkReceive", Napi::Function::New<Receive>(exports.Env(), "netlinkReceive"));
}
