// Unix sockets that Node lacks: SOCK_SEQPACKET in the abstract namespace, with file descriptors (SCM_RIGHTS) and the
// credentials of the peer (unix(7)). An abstract name belongs to the network namespace and ends with its socket.
#include <napi.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "core/fd.h"
#include "exports.h"
#include "fds.h"

namespace {

/// Most file descriptors of one message (SCM_MAX_FD).
constexpr size_t kMaxFds = 253;
constexpr size_t kMaxBytes = 65536;
constexpr int kBacklog = 511;

int OpenSocket(int type) { return socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

/// Calls `use` with a new socket and the address of an abstract name. @returns the file descriptor for JavaScript
template <typename Use>
Napi::Value WithName(const Napi::CallbackInfo& info, int type, Use use) {
  const std::string name = info[0].As<Napi::String>();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) return Napi::Number::New(info.Env(), -ENAMETOOLONG);
  memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  int fd = OpenSocket(type);
  const int failed = fd < 0 || use(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ? errno : 0;
  if (failed != 0) CloseFd(fd);
  return OwnFd(info.Env(), failed != 0 ? -failed : fd);
}

// listen(abstract name): a listening socket, or -errno
Napi::Value Listen(const Napi::CallbackInfo& info) {
  return WithName(info, SOCK_SEQPACKET, [](int fd, const sockaddr* address, socklen_t length) {
    return bind(fd, address, length) == 0 ? listen(fd, kBacklog) : -1;
  });
}

// connect(abstract name): a connected socket, or -errno
Napi::Value Connect(const Napi::CallbackInfo& info) { return WithName(info, SOCK_SEQPACKET, connect); }

// accept(fd): a connected socket, or -errno
Napi::Value Accept(const Napi::CallbackInfo& info) {
  const int fd = accept4(info[0].As<Napi::Number>(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  return OwnFd(info.Env(), fd < 0 ? -errno : fd);
}

// pair(): two connected sockets, of a stream, or -errno
Napi::Value Pair(const Napi::CallbackInfo& info) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
    return Napi::Number::New(info.Env(), -errno);
  auto pair = Napi::Array::New(info.Env(), 2);
  for (uint32_t i = 0; i < 2; i++) pair.Set(i, OwnFd(info.Env(), fds[i]));
  return pair;
}

// queue(): a socket that receives what it sends, in that order, or -errno. Only its holders can reach it.
Napi::Value Queue(const Napi::CallbackInfo& info) {
  int fd = OpenSocket(SOCK_DGRAM);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof address;
  // An address without a name: the kernel chooses one.
  const bool isOpen = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address.sun_family) == 0 &&
                      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
                      connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0;
  const int failed = isOpen ? 0 : errno;
  if (failed != 0) CloseFd(fd);
  return OwnFd(info.Env(), failed != 0 ? -failed : fd);
}

// peer(fd): process, user and group of the peer as they were when it connected, or -errno
Napi::Value Peer(const Napi::CallbackInfo& info) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(info[0].As<Napi::Number>(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return Napi::Number::New(info.Env(), -errno);
  auto object = Napi::Object::New(info.Env());
  object.Set("pid", peer.pid);
  object.Set("uid", peer.uid);
  object.Set("gid", peer.gid);
  return object;
}

// send(fd, bytes, file descriptors): 0 or -errno
Napi::Value Send(const Napi::CallbackInfo& info) {
  auto bytes = info[1].As<Napi::Uint8Array>();
  auto list = info[2].As<Napi::Array>();
  if (list.Length() > kMaxFds) return Napi::Number::New(info.Env(), -EINVAL);
  std::vector<int> fds(list.Length());
  for (uint32_t i = 0; i < fds.size(); i++) fds[i] = list.Get(i).As<Napi::Number>();
  const size_t fdBytes = fds.size() * sizeof(int);
  std::vector<uint8_t> control(fds.empty() ? 0 : CMSG_SPACE(fdBytes));
  iovec data{bytes.Data(), bytes.ByteLength()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fdBytes);
    memcpy(CMSG_DATA(c), fds.data(), fdBytes);
  }
  ssize_t sent;
  do sent = sendmsg(info[0].As<Napi::Number>(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return Napi::Number::New(info.Env(), sent < 0 ? -errno : 0);
}

// receive(fd, peek): the oldest message and its file descriptors; undefined at the end of the stream; or -errno. A
// message that is too long is an EMSGSIZE, and its descriptors are closed.
Napi::Value Receive(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  std::vector<uint8_t> bytes(kMaxBytes);
  alignas(cmsghdr) uint8_t control[CMSG_SPACE(kMaxFds * sizeof(int))];
  iovec data{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const int flags = MSG_CMSG_CLOEXEC | MSG_DONTWAIT | (info[1].As<Napi::Boolean>() ? MSG_PEEK : 0);
  ssize_t received;
  do received = recvmsg(info[0].As<Napi::Number>(), &message, flags);
  while (received < 0 && errno == EINTR);
  if (received < 0) return Napi::Number::New(env, -errno);
  std::vector<int> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const size_t first = fds.size();
    fds.resize(first + count);
    memcpy(fds.data() + first, CMSG_DATA(c), count * sizeof(int));
  }
  const bool isWhole = !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
  if (!isWhole || (received == 0 && fds.empty())) {
    for (int& fd : fds) CloseFd(fd);
    return isWhole ? env.Undefined() : Napi::Number::New(env, -EMSGSIZE);
  }
  auto owned = Napi::Array::New(env, fds.size());
  for (uint32_t i = 0; i < fds.size(); i++) owned.Set(i, OwnFd(env, fds[i]));
  auto result = Napi::Object::New(env);
  result.Set("bytes", Napi::Buffer<uint8_t>::Copy(env, bytes.data(), static_cast<size_t>(received)));
  result.Set("fds", owned);
  return result;
}

}  // namespace

void DefineUnixSockets(Napi::Object exports) {
  const Napi::Env env = exports.Env();
  auto functions = Napi::Object::New(env);
  functions.Set("listen", Napi::Function::New<Listen>(env, "listen"));
  functions.Set("connect", Napi::Function::New<Connect>(env, "connect"));
  functions.Set("accept", Napi::Function::New<Accept>(env, "accept"));
  functions.Set("pair", Napi::Function::New<Pair>(env, "pair"));
  functions.Set("queue", Napi::Function::New<Queue>(env, "queue"));
  functions.Set("peer", Napi::Function::New<Peer>(env, "peer"));
  functions.Set("send", Napi::Function::New<Send>(env, "send"));
  functions.Set("receive", Napi::Function::New<Receive>(env, "receive"));
  exports.Set("unix", functions);
}
