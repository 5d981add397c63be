// UDP sockets, one for each local address: the payload of the card's frames, for those who may not open a packet socket.
//
// The ICRC covers parts of the IP header that the kernel writes. What it writes is made certain: an unconnected socket
// with IP_PMTUDISC_DO sends identification 0 and "do not fragment" (a connected one counts up from a random number).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "frames.h"
#include "group.h"
#include "headers.h"

namespace {

constexpr uint32_t kRxIpIdUnknown = 0x10000;  // RX_IP_ID_UNKNOWN of src/link/link.ts

struct Socket {
  int fd;
  bool isIpv6;
  sockaddr_in6 address;  // or a sockaddr_in
  uint32_t overflows;    // the kernel's SO_RXQ_OVFL count as last seen
  bool isGroup;          // it only receives

  const uint8_t* Ip() const {
    return isIpv6 ? address.sin6_addr.s6_addr
                  : reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  }
};

template <typename T>
void PutControl(msghdr& header, int level, int type, T value) {
  auto c = reinterpret_cast<cmsghdr*>(static_cast<uint8_t*>(header.msg_control) + header.msg_controllen);
  c->cmsg_level = level;
  c->cmsg_type = type;
  c->cmsg_len = CMSG_LEN(sizeof value);
  memcpy(CMSG_DATA(c), &value, sizeof value);
  header.msg_controllen += CMSG_SPACE(sizeof value);
}

class UdpSocketsObject : public Napi::ObjectWrap<UdpSocketsObject> {
 public:
  using Self = UdpSocketsObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "UdpSockets",
                       {InstanceMethod<&Self::Add>("add"), InstanceMethod<&Self::AddGroup>("addGroup"),
                        InstanceMethod<&Self::RemoveGroup>("removeGroup"), InstanceMethod<&Self::Remove>("remove"),
                        InstanceMethod<&Self::Attach>("attach"),
                        InstanceMethod<&Self::Send>("send"), InstanceMethod<&Self::Receive>("receive"),
                        InstanceMethod<&Self::Counters>("counters"), InstanceMethod<&Self::Fds>("fds"),
                        InstanceMethod<&Self::Close>("close")});
  }
  explicit UdpSocketsObject(const Napi::CallbackInfo& info) : ObjectWrap(info) {}
  ~UdpSocketsObject() override { CloseAll(); }

 private:
  // add(address of 4 or 16 bytes, port, scope id, receiveBufferBytes, ifindex): 0 or -errno. Sends to groups by ifindex.
  Napi::Value Add(const Napi::CallbackInfo& info) {
    Socket s = AddressOf(info);
    int result = Bind(s, info[3].As<Napi::Number>());
    if (result == 0) result = SetGroupInterface(s.fd, s.isIpv6, info[4].As<Napi::Number>());
    return Keep(info.Env(), s, result);
  }

  // addGroup(group of 4 or 16 bytes, port, scope id, receiveBufferBytes, ifindex): the socket, or -errno. A socket that
  // is bound to a unicast address gets nothing that is sent to groups.
  Napi::Value AddGroup(const Napi::CallbackInfo& info) {
    Socket s = AddressOf(info);
    s.isGroup = true;
    const int ifindex = info[4].As<Napi::Number>();
    int result = Bind(s, info[3].As<Napi::Number>());
    if (result == 0) result = SetMembership(s.fd, s.Ip(), s.isIpv6, ifindex, true);
    const int fd = s.fd;
    Keep(info.Env(), s, result);
    return Napi::Number::New(info.Env(), result == 0 ? fd : result);
  }

  // removeGroup(group of 4 or 16 bytes)
  void RemoveGroup(const Napi::CallbackInfo& info) { Drop(info[0].As<Napi::Uint8Array>(), true); }

  // remove(address of 4 or 16 bytes)
  void Remove(const Napi::CallbackInfo& info) { Drop(info[0].As<Napi::Uint8Array>(), false); }

  void Drop(Napi::Uint8Array ip, bool isGroup) {
    auto found = std::find_if(sockets_.begin(), sockets_.end(), [&](const Socket& s) {
      const size_t bytes = s.isIpv6 ? 16 : 4;
      return s.isGroup == isGroup && ip.ByteLength() == bytes && memcmp(s.Ip(), ip.Data(), bytes) == 0;
    });
    if (found == sockets_.end()) return;
    CloseFd(found->fd);
    sockets_.erase(found);
  }

  // The first three arguments.
  static Socket AddressOf(const Napi::CallbackInfo& info) {
    auto ip = info[0].As<Napi::Uint8Array>();
    const uint16_t port = htons(info[1].As<Napi::Number>().Uint32Value());
    Socket s{};
    s.isIpv6 = ip.ByteLength() == 16;
    if (s.isIpv6) {
      s.address.sin6_family = AF_INET6;
      s.address.sin6_port = port;
      s.address.sin6_scope_id = info[2].As<Napi::Number>();
      memcpy(&s.address.sin6_addr, ip.Data(), 16);
    } else {
      auto& address = reinterpret_cast<sockaddr_in&>(s.address);
      address.sin_family = AF_INET;
      address.sin_port = port;
      memcpy(&address.sin_addr, ip.Data(), 4);
    }
    return s;
  }

  Napi::Value Keep(Napi::Env env, Socket& s, int result) {
    if (result == 0) {
      sockets_.push_back(s);
    } else {
      CloseFd(s.fd);
    }
    return Napi::Number::New(env, result);
  }

  static int Bind(Socket& s, int bufferBytes) {
    s.fd = socket(s.isIpv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s.fd < 0) return -errno;
    auto set = [&](int level, int option, int value) { return setsockopt(s.fd, level, option, &value, sizeof value); };
    const bool isSet =
        s.isIpv6 ? set(IPPROTO_IPV6, IPV6_V6ONLY, 1) == 0 &&
                       set(IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) == 0 &&
                       set(IPPROTO_IPV6, IPV6_RECVTCLASS, 1) == 0 && set(IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1) == 0 &&
                       // RoCE peers send no UDP checksum over IPv6 either, and the kernel would drop that
                       set(IPPROTO_UDP, UDP_NO_CHECK6_RX, 1) == 0 &&
                       // an address whose duplicate detection still runs will do
                       set(IPPROTO_IPV6, kIpv6FreeBind, 1) == 0
                 : set(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) == 0 && set(IPPROTO_IP, IP_RECVTOS, 1) == 0 &&
                       set(IPPROTO_IP, IP_RECVTTL, 1) == 0;
    if (!isSet || set(SOL_SOCKET, SO_RXQ_OVFL, 1) != 0) return -errno;
    // several programs may be members of one group
    if (s.isGroup && set(SOL_SOCKET, SO_REUSEADDR, 1) != 0) return -errno;
    SetReceiveBuffer(s.fd, bufferBytes);
    SetSendBuffer(s.fd, bufferBytes);
    const socklen_t size = s.isIpv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    return bind(s.fd, reinterpret_cast<sockaddr*>(&s.address), size) == 0 ? 0 : -errno;
  }

  void Attach(const Napi::CallbackInfo& info) { frames_.Attach(info); }

  // send(): descriptors taken off the transmit ring
  Napi::Value Send(const Napi::CallbackInfo& info) {
    if (sockets_.empty() || !frames_.IsAttached()) return Napi::Number::New(info.Env(), 0);
    Ring& ring = frames_.tx;
    const uint32_t first = ring.Consumer(), filled = ring.Producer() - first;
    uint32_t done = 0;
    for (bool busy = false; done < filled && !busy;) done += SendBatch(first + done, filled - done, busy);
    ring.SetConsumer(first + done);
    return Napi::Number::New(info.Env(), done);
  }

  // One batch holds consecutive frames of one source address.
  uint32_t SendBatch(uint32_t first, uint32_t filled, bool& busy) {
    const Socket* socket = nullptr;
    uint32_t place[kBatch];
    uint32_t taken = 0, count = 0;
    for (; taken < filled && count < kBatch; taken++) {
      const Descriptor& d = frames_.tx[first + taken];
      if (d.len == 0) continue;
      uint8_t* frame = frames_.At(d.addr, d.len);
      Datagram datagram;
      const Socket* owner = frame != nullptr && TakeApart(frame, d.len, datagram) ? Owner(datagram) : nullptr;
      // What cannot be sent is not counted behind frames which may yet have to stay: it would be seen again.
      if (count > 0 && socket != owner) break;
      if (owner == nullptr) {
        counters_.txInvalid++;
        continue;
      }
      socket = owner;
      Prepare(*socket, datagram, count);
      place[count++] = taken;
    }
    if (count == 0) return taken;
    int sent = sendmmsg(socket->fd, messages_, count, 0);
    if (sent < 0) {
      busy = counters_.TxRefused(errno);
      return place[0] + (busy ? 0 : 1);
    }
    for (int i = 0; i < sent; i++) counters_.txBytes += frames_.tx[first + place[i]].len;
    counters_.txFrames += sent;
    return static_cast<uint32_t>(sent) == count ? taken : place[sent];
  }

  const Socket* Owner(const Datagram& datagram) const {
    for (const Socket& s : sockets_)
      if (!s.isGroup && s.isIpv6 == datagram.isIpv6 && memcmp(s.Ip(), datagram.source, s.isIpv6 ? 16 : 4) == 0) return &s;
    return nullptr;
  }

  void Prepare(const Socket& socket, const Datagram& datagram, uint32_t i) {
    iov_[i] = {datagram.payload, datagram.payloadBytes};
    msghdr& header = messages_[i].msg_hdr;
    header = {};
    header.msg_iov = &iov_[i];
    header.msg_iovlen = 1;
    header.msg_name = &names_[i];
    header.msg_control = control_[i];
    names_[i] = {};
    const int hops = datagram.hopLimit == 0 ? 1 : datagram.hopLimit;
    if (datagram.isIpv6) {
      names_[i].sin6_family = AF_INET6;
      names_[i].sin6_port = htons(datagram.destinationPort);
      names_[i].sin6_scope_id = socket.address.sin6_scope_id;
      memcpy(&names_[i].sin6_addr, datagram.destination, 16);
      header.msg_namelen = sizeof(sockaddr_in6);
      PutControl<int>(header, IPPROTO_IPV6, IPV6_TCLASS, datagram.trafficClass);
      PutControl<int>(header, IPPROTO_IPV6, IPV6_HOPLIMIT, hops);
    } else {
      auto& name = reinterpret_cast<sockaddr_in&>(names_[i]);
      name.sin_family = AF_INET;
      name.sin_port = htons(datagram.destinationPort);
      memcpy(&name.sin_addr, datagram.destination, 4);
      header.msg_namelen = sizeof(sockaddr_in);
      PutControl<int>(header, IPPROTO_IP, IP_TOS, datagram.trafficClass);
      PutControl<int>(header, IPPROTO_IP, IP_TTL, hops);
    }
  }

  // receive(): frames put into the receive ring, one batch of each socket at most
  Napi::Value Receive(const Napi::CallbackInfo& info) {
    uint32_t received = 0;
    if (frames_.IsAttached())
      for (size_t i = 0; i < sockets_.size(); i++) {
        Socket& socket = sockets_[(turn_ + i) % sockets_.size()];
        const uint32_t few = ReceiveBatch(socket, kFewFrames);
        received += few == kFewFrames ? few + ReceiveBatch(socket, kBatch - kFewFrames) : few;
      }
    turn_++;
    return Napi::Number::New(info.Env(), received);
  }

  uint32_t ReceiveBatch(Socket& socket, uint32_t limit) {
    Ring& ring = frames_.rx;
    const uint32_t first = ring.Producer();
    const uint32_t headers = socket.isIpv6 ? kHeaders6 : kHeaders4;
    uint32_t count = std::min(ring.Free(), limit);
    for (uint32_t i = 0; i < count; i++) {
      uint8_t* slot = frames_.At(ring[first + i].addr, frames_.slotBytes);
      if (slot == nullptr) count = i;
      iov_[i] = {slot + headers, frames_.slotBytes - headers};
      msghdr& header = messages_[i].msg_hdr;
      header = {};
      header.msg_iov = &iov_[i];
      header.msg_iovlen = 1;
      header.msg_name = &names_[i];
      header.msg_namelen = sizeof names_[i];
      header.msg_control = control_[i];
      header.msg_controllen = sizeof control_[i];
    }
    if (count == 0) return 0;
    int received = recvmmsg(socket.fd, messages_, count, 0, nullptr);
    if (received < 0) {
      counters_.RxFailed(errno);
      return 0;
    }
    uint32_t good = 0;
    for (int i = 0; i < received; i++) {
      const uint32_t bytes = messages_[i].msg_len;
      uint8_t trafficClass = 0, hopLimit = 0;
      ReadControl(socket, messages_[i].msg_hdr, trafficClass, hopLimit);
      if (messages_[i].msg_hdr.msg_flags & MSG_TRUNC) {
        counters_.rxTruncated++;
        continue;
      }
      uint8_t* frame = static_cast<uint8_t*>(iov_[i].iov_base) - headers;
      if (socket.isIpv6) {
        PutBack6(frame, bytes, names_[i], socket.address, trafficClass, hopLimit);
      } else {
        PutBack4(frame, bytes, reinterpret_cast<sockaddr_in&>(names_[i]),
                 reinterpret_cast<const sockaddr_in&>(socket.address), trafficClass, hopLimit);
      }
      Descriptor& to = ring[first + good];
      // Both slots are free, so a frame behind a bad one may bring its slot along.
      std::swap(to.addr, ring[first + i].addr);
      to.len = headers + bytes;
      to.options = socket.isIpv6 ? 0 : kRxIpIdUnknown;
      counters_.rxBytes += to.len;
      good++;
    }
    counters_.rxFrames += good;
    ring.SetProducer(first + good);
    return good;
  }

  void ReadControl(Socket& socket, msghdr& header, uint8_t& trafficClass, uint8_t& hopLimit) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      // Only IP_TOS is a single byte; of the others, little-endian, the first byte is the value as well.
      const uint8_t value = *CMSG_DATA(c);
      const bool isIp = c->cmsg_level == IPPROTO_IP || c->cmsg_level == IPPROTO_IPV6;
      if (isIp && (c->cmsg_type == IP_TOS || c->cmsg_type == IPV6_TCLASS)) trafficClass = value;
      if (isIp && (c->cmsg_type == IP_TTL || c->cmsg_type == IPV6_HOPLIMIT)) hopLimit = value;
      if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
        uint32_t overflows;
        memcpy(&overflows, CMSG_DATA(c), sizeof overflows);
        counters_.rxDropped += overflows - socket.overflows;
        socket.overflows = overflows;
      }
    }
  }

  Napi::Value Counters(const Napi::CallbackInfo& info) {
    auto object = counters_.ToObject(info.Env());
    object.Set("rx_buffer_bytes", sockets_.empty() ? 0 : ReceiveBuffer(sockets_[0].fd));
    return object;
  }

  Napi::Value Fds(const Napi::CallbackInfo& info) {
    auto fds = Napi::Array::New(info.Env(), sockets_.size());
    for (size_t i = 0; i < sockets_.size(); i++) fds.Set(static_cast<uint32_t>(i), sockets_[i].fd);
    return fds;
  }

  void Close(const Napi::CallbackInfo&) {
    CloseAll();
    frames_.Detach();
  }

  void CloseAll() {
    for (Socket& s : sockets_) CloseFd(s.fd);
    sockets_.clear();
  }

  std::vector<Socket> sockets_;
  size_t turn_ = 0;
  Frames frames_;
  FrameCounters counters_;
  mmsghdr messages_[kBatch];
  iovec iov_[kBatch];
  sockaddr_in6 names_[kBatch];
  // Room for traffic class, hop limit and the overflow count.
  alignas(cmsghdr) uint8_t control_[kBatch][3 * CMSG_SPACE(sizeof(int))];
};

}  // namespace

Napi::Function UdpSockets(Napi::Env env) { return UdpSocketsObject::Define(env); }
