// Unix sockets that Node lacks: see core/unixsocket.h. They also give the credentials of the peer (unix(7)).
#include <napi.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <cerrno>
#include <vector>

#include "core/fd.h"
#include "core/unixsocket.h"
#include "exports.h"
#include "fds.h"

namespace {

// listen(abstract name): a listening socket, or -errno
Napi::Value Listen(const Napi::CallbackInfo& info) {
  return OwnFd(info.Env(), ListenUnix(info[0].As<Napi::String>()));
}

// connect(abstract name): a connected socket, or -errno
Napi::Value Connect(const Napi::CallbackInfo& info) {
  return OwnFd(info.Env(), ConnectUnix(info[0].As<Napi::String>()));
}

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
  int fd = OpenUnixSocket(SOCK_DGRAM);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof address;
  // An address without a name: the kernel chooses one.
  const bool isOpen = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address.sun_family) == 0 &&
                      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
                      connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0;
  if (fd < 0 || isOpen) return OwnFd(info.Env(), fd);
  const int failed = errno;
  CloseFd(fd);
  return Napi::Number::New(info.Env(), -failed);
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
  std::vector<int> fds(list.Length());
  for (uint32_t i = 0; i < fds.size(); i++) fds[i] = list.Get(i).As<Napi::Number>();
  const int result = SendUnix(info[0].As<Napi::Number>(), bytes.Data(), bytes.ByteLength(), fds);
  return Napi::Number::New(info.Env(), result);
}

// receive(fd, peek): the oldest message and its file descriptors; undefined at the end of the stream; or -errno. A
// message that is too long is an EMSGSIZE, and its descriptors are closed.
Napi::Value Receive(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  UnixMessage message;
  const int refused = ReceiveUnix(info[0].As<Napi::Number>(), info[1].As<Napi::Boolean>(), message);
  if (refused != 0) return Napi::Number::New(env, refused);
  if (message.IsEnd()) return env.Undefined();
  auto owned = Napi::Array::New(env, message.fds.size());
  for (uint32_t i = 0; i < message.fds.size(); i++) owned.Set(i, OwnFd(env, message.fds[i]));
  auto result = Napi::Object::New(env);
  result.Set("bytes", Napi::Buffer<uint8_t>::Copy(env, message.bytes.data(), message.bytes.size()));
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
