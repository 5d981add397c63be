// The sockets that share one UDP address and port (SO_REUSEPORT), and the classic BPF program that chooses one of them
// for each datagram.
#include <linux/filter.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <cerrno>
#include <vector>

#include "core/address.h"
#include "core/fd.h"
#include "core/roce_filter.h"
#include "core/udpsocket.h"
#include "arguments.h"
#include "exports.h"
#include "fds.h"

namespace {

// member(address of 4 or 16 bytes, port, scope id, bufferBytes, receives): a socket, or -errno. One that does not
// receive drops every datagram.
Napi::Value Member(const Napi::CallbackInfo& info) {
  int fd = -1;
  int failed = OpenUdpSocket(fd, AddressOf(info), info[3].As<Napi::Number>(), Sharing::kPort);
  if (failed == 0 && !info[4].As<Napi::Boolean>() && AttachFilter(fd, kNothing) != 0) failed = -errno;
  // Packets are coalesced before one of the members is chosen, if a member that a hash chooses wants that. Without
  // UDP_GRO the kernel would segment super-packets before it drops them.
  const int on = 1;
  if (failed == 0) setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on);
  if (failed != 0) CloseFd(fd);
  return OwnFd(info.Env(), failed != 0 ? failed : fd);
}

// isFree(address, port, scope id, beside sockets of a group): 0, or -errno
Napi::Value IsFree(const Napi::CallbackInfo& info) {
  int fd = -1;
  const Sharing sharing = info[3].As<Napi::Boolean>() ? Sharing::kPort : Sharing::kNone;
  const int failed = OpenUdpSocket(fd, AddressOf(info), 0, sharing);
  CloseFd(fd);
  return Napi::Number::New(info.Env(), failed);
}

// steer(fd, program): 0 or -errno. Two numbers for each instruction: code << 16 | jt << 8 | jf, and k.
Napi::Value Steer(const Napi::CallbackInfo& info) {
  auto words = info[1].As<Napi::Uint32Array>();
  std::vector<sock_filter> program(words.ElementLength() / 2);
  for (size_t i = 0; i < program.size(); i++) {
    const uint32_t head = words[2 * i];
    program[i] = {static_cast<__u16>(head >> 16), static_cast<__u8>(head >> 8), static_cast<__u8>(head),
                  words[2 * i + 1]};
  }
  const sock_fprog attached{static_cast<unsigned short>(program.size()), program.data()};
  const int result =
      setsockopt(info[0].As<Napi::Number>(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &attached, sizeof attached);
  return Napi::Number::New(info.Env(), result == 0 ? 0 : -errno);
}

// lock(fd): 0 or -errno
Napi::Value LockFilter(const Napi::CallbackInfo& info) {
  const int on = 1;
  const int result = setsockopt(info[0].As<Napi::Number>(), SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on);
  return Napi::Number::New(info.Env(), result == 0 ? 0 : -errno);
}

// drain(fd): drops what the socket has received
void Drain(const Napi::CallbackInfo& info) { DropReceived(IntAt(info, 0)); }

}  // namespace

void DefinePortGroups(Napi::Object exports) {
  const Napi::Env env = exports.Env();
  auto functions = Napi::Object::New(env);
  functions.Set("member", Napi::Function::New<Member>(env, "member"));
  functions.Set("isFree", Napi::Function::New<IsFree>(env, "isFree"));
  functions.Set("steer", Napi::Function::New<Steer>(env, "steer"));
  functions.Set("lock", Napi::Function::New<LockFilter>(env, "lock"));
  functions.Set("drain", Napi::Function::New<Drain>(env, "drain"));
  exports.Set("ports", functions);
}
