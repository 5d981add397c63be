// A UDP socket with a port of its own that sends single frames and learns of the ICMP errors that they meet. The
// sockets of the links do not: an error would be returned by a call for another peer.
//
// It is not connected, for the same reason as the sockets of udp.cc.
#include <netinet/in.h>
#include <cerrno>
#include <ctime>

#include <linux/errqueue.h>  // needs timespec

#include "address.h"
#include "frames.h"
#include "roce_filter.h"
#include "udpmessage.h"

namespace {

class ErrorSocketObject : public Napi::ObjectWrap<ErrorSocketObject> {
 public:
  using Self = ErrorSocketObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "ErrorSocket",
                       {InstanceMethod<&Self::Open>("open"), InstanceMethod<&Self::Port>("port"),
                        InstanceMethod<&Self::Fd>("fd"), InstanceMethod<&Self::Send>("send"),
                        InstanceMethod<&Self::Read>("read"), InstanceMethod<&Self::Close>("close")});
  }
  explicit ErrorSocketObject(const Napi::CallbackInfo& info) : ObjectWrap(info) {}
  ~ErrorSocketObject() override { CloseFd(fd_); }

 private:
  // open(address of 4 or 16 bytes, port, scope id): 0 or -errno
  Napi::Value Open(const Napi::CallbackInfo& info) {
    const sockaddr_in6 address = AddressOf(info);
    const int result = Bind(address);
    if (result != 0) CloseFd(fd_);
    return Napi::Number::New(info.Env(), result);
  }

  int Bind(const sockaddr_in6& address) {
    isIpv6_ = IsIpv6(address);
    scopeId_ = isIpv6_ ? address.sin6_scope_id : 0;
    fd_ = socket(address.sin6_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return -errno;
    auto set = [&](int level, int option, int value) { return setsockopt(fd_, level, option, &value, sizeof value); };
    const bool isSet = isIpv6_ ? set(IPPROTO_IPV6, IPV6_V6ONLY, 1) == 0 && set(IPPROTO_IPV6, IPV6_RECVERR, 1) == 0 &&
                                     set(IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) == 0
                               : set(IPPROTO_IP, IP_RECVERR, 1) == 0 &&
                                     set(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) == 0;
    // it is readable for errors only
    if (!isSet || AttachFilter(fd_, kNothing) != 0) return -errno;
    if (bind(fd_, reinterpret_cast<const sockaddr*>(&address), SizeOf(address)) != 0) return -errno;
    sockaddr_in6 bound{};
    socklen_t size = sizeof bound;
    if (getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return -errno;
    // at the same place for both families
    port_ = ntohs(bound.sin6_port);
    return 0;
  }

  Napi::Value Port(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), port_); }

  Napi::Value Fd(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), fd_); }

  // send(frame): 0 or -errno
  Napi::Value Send(const Napi::CallbackInfo& info) {
    auto frame = info[0].As<Napi::Uint8Array>();
    return Napi::Number::New(info.Env(), SendFrame(frame.Data(), static_cast<uint32_t>(frame.ByteLength())));
  }

  int SendFrame(uint8_t* frame, uint32_t bytes) const {
    Datagram datagram;
    if (!ParseUdp(frame, bytes, datagram) || datagram.isIpv6 != isIpv6_) return -EINVAL;
    alignas(cmsghdr) uint8_t control[kAddressControlBytes];
    sockaddr_in6 name;
    iovec piece{datagram.payload, datagram.payloadBytes};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    AddressMessage(message, name, datagram, scopeId_);
    // The first call may return the error of an earlier frame, which the error queue has, too.
    if (sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 0;
    return sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ? 0 : -errno;
  }

  // read(): the oldest error that has not been read, { errno, address }, or undefined
  Napi::Value Read(const Napi::CallbackInfo& info) {
    Napi::Env env = info.Env();
    for (;;) {
      sockaddr_in6 to{};
      alignas(cmsghdr) uint8_t control[512];
      msghdr message{};
      message.msg_name = &to;
      message.msg_namelen = sizeof to;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      if (recvmsg(fd_, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
        if (errno == EINTR) continue;
        // An error that found no room in the queue would keep the socket readable.
        int lost = 0;
        socklen_t size = sizeof lost;
        getsockopt(fd_, SOL_SOCKET, SO_ERROR, &lost, &size);
        return env.Undefined();
      }
      const int error = IcmpErrorOf(message);
      if (error == 0) continue;
      auto address = Napi::Uint8Array::New(env, IpBytes(to));
      memcpy(address.Data(), IpOf(to), IpBytes(to));
      auto result = Napi::Object::New(env);
      result.Set("errno", -error);
      result.Set("address", address);
      return result;
    }
  }

  /// @returns the errno of an ICMP error, or 0 for what the host itself says of a frame
  static int IcmpErrorOf(msghdr& message) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      const bool isError = (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) ||
                           (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR);
      if (!isError) continue;
      sock_extended_err error;
      memcpy(&error, CMSG_DATA(c), sizeof error);
      if (error.ee_origin != SO_EE_ORIGIN_ICMP && error.ee_origin != SO_EE_ORIGIN_ICMP6) return 0;
      return static_cast<int>(error.ee_errno);
    }
    return 0;
  }

  void Close(const Napi::CallbackInfo&) { CloseFd(fd_); }

  int fd_ = -1;
  bool isIpv6_ = false;
  uint32_t scopeId_ = 0;
  uint16_t port_ = 0;
};

}  // namespace

Napi::Function ErrorSocket(Napi::Env env) { return ErrorSocketObject::Define(env); }
