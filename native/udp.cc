// UDP sockets, one for each local address, which carry the payload of the card's frames. They need no privilege.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "address.h"
#include "framesocket.h"
#include "group.h"
#include "localsockets.h"
#include "roce_filter.h"
#include "udpmessage.h"
#include "udpsocket.h"
#include "waits.h"

namespace {

/// Local sockets are looked at after this time at the latest.
constexpr std::chrono::microseconds kLocalBusy{1000};
/// So many calls without a wait, and without a pause between them, are those of a program that polls. It looks at them
/// at this interval, and in each call for some time after a local frame.
constexpr uint32_t kPollingCalls = 8;
constexpr std::chrono::microseconds kLocalPause{15}, kLocalPolling{250}, kLocalActive{1000};

struct Socket {
  explicit Socket(const sockaddr_in6& bound) : address(bound), isIpv6(IsIpv6(bound)) {}

  sockaddr_in6 address;  // or a sockaddr_in
  bool isIpv6;
  bool isGroup = false;    // it only receives
  uint16_t port = 0;       // of a socket that only sends
  int fd = -1;
  uint32_t overflows = 0;  // the kernel's SO_RXQ_OVFL count as last seen
};

class UdpSocketsObject : public Napi::ObjectWrap<UdpSocketsObject>, public LocalSockets, FrameSocket {
 public:
  using Self = UdpSocketsObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "UdpSockets",
                       {InstanceMethod<&Self::Add>("add"), InstanceMethod<&Self::Adopt>("adopt"),
                        InstanceMethod<&Self::AddSender>("addSender"),
                        InstanceMethod<&Self::JoinGroup>("joinGroup"),
                        InstanceMethod<&Self::LeaveGroup>("leaveGroup"), InstanceMethod<&Self::Remove>("remove"),
                        InstanceMethod<&Self::SupportsGso>("supportsGso"), InstanceMethod<&Self::Attach>("attach"),
                        InstanceMethod<&Self::TransferOut>("transfer"), InstanceMethod<&Self::Send>("send"),
                        InstanceMethod<&Self::Receive>("receive"), InstanceMethod<&Self::Counters>("counters"),
                        InstanceMethod<&Self::Fds>("fds"), InstanceMethod<&Self::FdOf>("fdOf"),
                        InstanceMethod<&Self::Close>("close")});
  }
  explicit UdpSocketsObject(const Napi::CallbackInfo& info) : ObjectWrap(info) {}
  ~UdpSocketsObject() override {
    Revoke();
    CloseAll();
  }

  uint32_t SendBatch(uint32_t at, uint32_t end, bool& busy) override {
    const auto lock = Lock();
    // Nobody can receive from an address without a socket.
    if (CanSend()) return SendNextBatch(at, end, busy);
    counters_.txInvalid += end - at;
    return end;
  }

  uint32_t ReceiveReady(bool hasOthers) override {
    const auto lock = Lock();
    return ReceiveLocal(hasOthers);
  }

  bool TakesGso() const override { return UsesGso(); }

  void LetOtherThreadMove() override { Transfer(); }

 private:
  // add(address of 4 or 16 bytes, port, scope id, bufferBytes, ifindex): 0 or -errno. Datagrams to groups leave by
  // ifindex.
  Napi::Value Add(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    Socket s{AddressOf(info)};
    int result = OpenUdpSocket(s.fd, s.address, info[3].As<Napi::Number>(), Sharing::kNone);
    if (result == 0) result = SetGroupInterface(s.fd, s.isIpv6, info[4].As<Napi::Number>());
    return Keep(info.Env(), s, result);
  }

  // adopt(fd, address of 4 or 16 bytes, port, scope id, bufferBytes, ifindex): 0 or -errno. Uses a duplicate of a
  // socket that is bound to the address. Datagrams to groups leave by ifindex.
  Napi::Value Adopt(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    Socket s{AddressOf(info, 1)};
    s.fd = fcntl(info[0].As<Napi::Number>(), F_DUPFD_CLOEXEC, 0);
    if (s.fd < 0) return Napi::Number::New(info.Env(), -errno);
    const int bufferBytes = info[4].As<Napi::Number>();
    SetReceiveBuffer(s.fd, bufferBytes);
    SetSendBuffer(s.fd, bufferBytes);
    return Keep(info.Env(), s, SetGroupInterface(s.fd, s.isIpv6, info[5].As<Napi::Number>()));
  }

  // addSender(address of 4 or 16 bytes, 0, scope id, bufferBytes, hasChecksum): the UDP port of a socket that only
  // sends, or -errno
  Napi::Value AddSender(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    Socket s{AddressOf(info)};
    int result = OpenUdpSocket(s.fd, s.address, info[3].As<Napi::Number>(), Sharing::kNone);
    if (result == 0 && AttachFilter(s.fd, kNothing) != 0) result = -errno;
    if (result == 0 && !info[4].As<Napi::Boolean>()) result = SetChecksum(s.fd, s.isIpv6, Checksum::kZero);
    sockaddr_in6 bound{};
    socklen_t size = sizeof bound;
    if (result == 0 && getsockname(s.fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) result = -errno;
    if (result != 0) {
      CloseFd(s.fd);
      return Napi::Number::New(info.Env(), result);
    }
    s.port = PortOf(bound);
    senders_.push_back(s);
    return Napi::Number::New(info.Env(), s.port);
  }

  // joinGroup(group of 4 or 16 bytes, port, scope id, bufferBytes, ifindex): the file descriptor, or -errno. Groups
  // need sockets of their own: a socket bound to a unicast address receives no multicast.
  Napi::Value JoinGroup(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    Socket s{AddressOf(info)};
    s.isGroup = true;
    const int ifindex = info[4].As<Napi::Number>();
    int result = OpenUdpSocket(s.fd, s.address, info[3].As<Napi::Number>(), Sharing::kGroup);
    if (result == 0) result = SetMembership(s.fd, info[0].As<Napi::Uint8Array>().Data(), s.isIpv6, ifindex, true);
    const int fd = s.fd;
    Keep(info.Env(), s, result);
    return Napi::Number::New(info.Env(), result == 0 ? fd : result);
  }

  // leaveGroup(group of 4 or 16 bytes)
  void LeaveGroup(const Napi::CallbackInfo& info) { Drop(info[0].As<Napi::Uint8Array>(), true); }

  // remove(address of 4 or 16 bytes)
  void Remove(const Napi::CallbackInfo& info) { Drop(info[0].As<Napi::Uint8Array>(), false); }

  void Drop(Napi::Uint8Array ip, bool isGroup) {
    const auto lock = Lock();
    auto found = std::find_if(sockets_.begin(), sockets_.end(), [&](const Socket& s) {
      return s.isGroup == isGroup && HasIp(s.address, ip.Data(), ip.ByteLength());
    });
    if (found == sockets_.end()) return;
    CloseFd(found->fd);
    sockets_.erase(found);
  }

  Napi::Value Keep(Napi::Env env, Socket& s, int result) {
    if (result == 0) {
      SetGro(s.fd);
      sockets_.push_back(s);
    } else {
      CloseFd(s.fd);
    }
    return Napi::Number::New(env, result);
  }

  // supportsGso(): whether the kernel has UDP_SEGMENT and UDP_GRO
  Napi::Value SupportsGso(const Napi::CallbackInfo& info) {
    const int off = 0;
    const bool knows =
        !sockets_.empty() && setsockopt(sockets_[0].fd, IPPROTO_UDP, UDP_SEGMENT, &off, sizeof off) == 0 &&
        setsockopt(sockets_[0].fd, IPPROTO_UDP, UDP_GRO, &off, sizeof off) == 0;
    return Napi::Boolean::New(info.Env(), knows);
  }

  void Attach(const Napi::CallbackInfo& info) {
    frames_.Attach(info);
    for (Socket& s : sockets_) SetGro(s.fd);
  }

  // Without UDP_GRO the kernel segments super-packets itself.
  void SetGro(int fd) const {
    const int gro = frames_.slotBytes >= kCoalescedBytes;
    setsockopt(fd, IPPROTO_UDP, UDP_GRO, &gro, sizeof gro);
  }

  // transfer(): the id for AdoptedSocket
  Napi::Value TransferOut(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), Transfer()); }

  // send(): descriptors consumed, or ~ of that if the kernel refused a GSO burst
  Napi::Value Send(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    return Napi::Number::New(info.Env(), SendFrames());
  }

  bool CanSend() const override { return !sockets_.empty(); }

  int SendFd() const override { return sending_->fd; }

  // All messages of a batch have one source address: that of the socket that sends them.
  AddResult Add(GsoBurst& burst) override {
    Datagram datagram;
    const bool isDatagram = burst.frame != nullptr && ParseUdp(burst.frame, burst.frameBytes, datagram);
    const Socket* owner = isDatagram ? Owner(datagram) : nullptr;
    // A frame that continues a burst needs an identification other than 0, which the kernel writes only inside a burst.
    const bool isStray = owner != nullptr && !owner->isIpv6 && ContinuesBurst(burst);
    if (!batch_.IsEmpty() && (isStray || owner != sending_)) return AddResult::kFlushFirst;
    if (owner == nullptr || isStray) {
      burst.frames = 1;
      (isStray ? counters_.txErrors : counters_.txInvalid)++;
      return AddResult::kDone;
    }
    sending_ = owner;
    msghdr& header = batch_.Begin();
    header.msg_control = control_[batch_.Count()];
    AddressMessage(header, names_[batch_.Count()], datagram, owner->address.sin6_scope_id);
    if (burst.frames == 1) {
      batch_.Put(datagram.payload, datagram.payloadBytes);
    } else {
      PutPayloads(burst, datagram.headerBytes);
      if (burst.frames > 1)
        PutControl(header, IPPROTO_UDP, UDP_SEGMENT, static_cast<uint16_t>(burst.frameBytes - datagram.headerBytes));
    }
    return AddResult::kAdded;
  }

  /// Returns the socket that sends from the source address and port of a frame. A card without senders writes the port
  /// of the sockets that receive into all of its frames.
  const Socket* Owner(const Datagram& datagram) const {
    const size_t bytes = datagram.isIpv6 ? 16 : 4;
    for (const Socket& s : senders_)
      if (s.port == datagram.sourcePort && HasIp(s.address, datagram.source, bytes)) return &s;
    for (const Socket& s : sockets_)
      if (!s.isGroup && HasIp(s.address, datagram.source, bytes)) return &s;
    return nullptr;
  }

  // receive(): descriptors produced in the receive ring, one batch of each socket at most
  Napi::Value Receive(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    return Napi::Number::New(info.Env(), ReceiveFrames());
  }

  uint32_t ReceiveFrames() override {
    uint32_t received = 0;
    if (frames_.IsAttached())
      for (size_t i = 0; i < sockets_.size(); i++)
        received += ReceiveFromSocket(sockets_[(turn_ + i) % sockets_.size()]);
    turn_++;
    return received;
  }

  uint32_t ReceiveFromSocket(Socket& socket) {
    receiving_ = &socket;
    return ReceiveFrom(socket.fd);
  }

  uint32_t ReceiveLocal(bool hasOthers) override {
    if (!frames_.IsAttached() || !IsLocalDue(hasOthers)) return 0;
    readable_.clear();
    for (const Socket& s : sockets_) readable_.push_back({s.fd, POLLIN, 0});
    if (poll(readable_.data(), readable_.size(), 0) <= 0) return 0;
    uint32_t received = 0;
    for (size_t i = 0; i < sockets_.size(); i++) {
      const size_t k = (turn_ + i) % sockets_.size();
      if (readable_[k].revents != 0) received += ReceiveFromSocket(sockets_[k]);
    }
    turn_++;
    if (received > 0) localReceivedAt_ = localLookedAt_;
    return received;
  }

  /// A look at the sockets takes a system call. The end of a wait may come from them, unless the interface has frames.
  bool IsLocalDue(bool hasOthers) {
    const auto now = std::chrono::steady_clock::now();
    const bool hasWaited = endedWaits != waits_;
    const bool isPause = hasWaited || now - localCalledAt_ >= kLocalPause;
    pollingCalls_ = isPause ? 0 : pollingCalls_ + 1;
    waits_ = endedWaits;
    localCalledAt_ = now;
    if ((!hasWaited || hasOthers) && now - localLookedAt_ < LocalInterval(now)) return false;
    localLookedAt_ = now;
    return true;
  }

  std::chrono::microseconds LocalInterval(std::chrono::steady_clock::time_point now) const {
    if (pollingCalls_ < kPollingCalls) return kLocalBusy;
    return now - localReceivedAt_ < kLocalActive ? std::chrono::microseconds{0} : kLocalPolling;
  }

  uint32_t HeaderBytes() const { return receiving_->isIpv6 ? kHeaderBytes6 : kHeaderBytes4; }

  void PrepareReceive(uint32_t i, uint8_t* slot) override {
    into_[i] = {slot + HeaderBytes(), frames_.slotBytes - HeaderBytes()};
    msghdr& header = received_[i].msg_hdr;
    header = {};
    header.msg_iov = &into_[i];
    header.msg_iovlen = 1;
    header.msg_name = &names_[i];
    header.msg_namelen = sizeof names_[i];
    header.msg_control = control_[i];
    header.msg_controllen = sizeof control_[i];
  }

  bool CompleteReceive(uint32_t i, Descriptor& to) override {
    const Socket& socket = *receiving_;
    const uint32_t bytes = received_[i].msg_len;
    uint8_t* frame = static_cast<uint8_t*>(into_[i].iov_base) - HeaderBytes();
    const Control control = ReadControl(received_[i].msg_hdr);
    if (socket.isIpv6) {
      WriteHeaders6(frame, bytes, names_[i], socket.address, control.trafficClass, control.hopLimit);
    } else {
      WriteHeaders4(frame, bytes, reinterpret_cast<sockaddr_in&>(names_[i]),
               reinterpret_cast<const sockaddr_in&>(socket.address), control.trafficClass, control.hopLimit);
    }
    to.len = HeaderBytes() + bytes;
    to.options = socket.isIpv6 ? 0 : kRxIpIdUnknown;
    return CompleteSuperPacket(HeaderBytes(), control.segmentBytes, to);
  }

  struct Control {
    uint8_t trafficClass = 0;
    uint8_t hopLimit = 0;
    uint32_t segmentBytes = 0;
  };

  Control ReadControl(msghdr& header) {
    Control control;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      // IP_TOS is a single byte. The others are an int, and its first byte is the value on little-endian processors.
      const uint8_t byte = *CMSG_DATA(c);
      uint32_t value = 0;
      if (c->cmsg_len >= CMSG_LEN(sizeof value)) memcpy(&value, CMSG_DATA(c), sizeof value);
      const bool isIp = c->cmsg_level == IPPROTO_IP || c->cmsg_level == IPPROTO_IPV6;
      if (isIp && (c->cmsg_type == IP_TOS || c->cmsg_type == IPV6_TCLASS)) control.trafficClass = byte;
      if (isIp && (c->cmsg_type == IP_TTL || c->cmsg_type == IPV6_HOPLIMIT)) control.hopLimit = byte;
      if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) control.segmentBytes = value;
      if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
        counters_.rxDropped += value - receiving_->overflows;
        receiving_->overflows = value;
      }
    }
    return control;
  }

  Napi::Value Counters(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    auto object = counters_.ToObject(info.Env());
    object.Set("rx_buffer_bytes", sockets_.empty() ? 0 : ReceiveBuffer(sockets_[0].fd));
    return object;
  }

  Napi::Value Fds(const Napi::CallbackInfo& info) {
    auto fds = Napi::Array::New(info.Env(), sockets_.size());
    for (size_t i = 0; i < sockets_.size(); i++) fds.Set(static_cast<uint32_t>(i), sockets_[i].fd);
    return fds;
  }

  // fdOf(address of 4 or 16 bytes): the file descriptor of the socket with this address, or -1
  Napi::Value FdOf(const Napi::CallbackInfo& info) {
    auto ip = info[0].As<Napi::Uint8Array>();
    for (const Socket& s : sockets_)
      if (!s.isGroup && HasIp(s.address, ip.Data(), ip.ByteLength())) return Napi::Number::New(info.Env(), s.fd);
    return Napi::Number::New(info.Env(), -1);
  }

  void Close(const Napi::CallbackInfo&) {
    Revoke();
    CloseAll();
    frames_.Detach();
  }

  void CloseAll() {
    for (auto* sockets : {&sockets_, &senders_}) {
      for (Socket& s : *sockets) CloseFd(s.fd);
      sockets->clear();
    }
  }

  std::vector<Socket> sockets_;
  /// They send from other ports, and receive nothing.
  std::vector<Socket> senders_;
  size_t turn_ = 0;
  const Socket* sending_ = nullptr;
  Socket* receiving_ = nullptr;
  std::vector<pollfd> readable_;
  /// endedWaits at the last call.
  uint32_t waits_ = 0;
  /// Calls since the last wait or pause.
  uint32_t pollingCalls_ = 0;
  std::chrono::steady_clock::time_point localCalledAt_, localLookedAt_, localReceivedAt_;
  iovec into_[kBatch];
  sockaddr_in6 names_[kBatch];
  // Room for traffic class, hop limit, segment size and the overflow count.
  alignas(cmsghdr) uint8_t control_[kBatch][4 * CMSG_SPACE(sizeof(int))];
};

}  // namespace

Napi::Function UdpSockets(Napi::Env env) { return UdpSocketsObject::Define(env); }

LocalSockets* LocalSocketsOf(Napi::Value udpSockets) {
  return UdpSocketsObject::Unwrap(udpSockets.As<Napi::Object>());
}
