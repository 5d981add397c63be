#include "udpsockets.h"

#include <fcntl.h>
#include <netinet/udp.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "address.h"
#include "fd.h"
#include "group.h"
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

}  // namespace

UdpSockets::Socket::Socket(const sockaddr_in6& bound) : address(bound), isIpv6(IsIpv6(bound)) {}

UdpSockets::~UdpSockets() {
  Revoke();
  CloseAll();
}

int UdpSockets::Add(const sockaddr_in6& address, int bufferBytes, int ifindex) {
  const auto lock = Lock();
  Socket s{address};
  int result = OpenUdpSocket(s.fd, s.address, bufferBytes, Sharing::kNone);
  if (result == 0) result = SetGroupInterface(s.fd, s.isIpv6, ifindex);
  return Keep(s, result);
}

int UdpSockets::Adopt(int fd, const sockaddr_in6& address, int bufferBytes, int ifindex) {
  const auto lock = Lock();
  Socket s{address};
  s.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (s.fd < 0) return -errno;
  SetReceiveBuffer(s.fd, bufferBytes);
  SetSendBuffer(s.fd, bufferBytes);
  return Keep(s, SetGroupInterface(s.fd, s.isIpv6, ifindex));
}

int UdpSockets::AddSender(const sockaddr_in6& address, int bufferBytes, bool hasChecksum) {
  const auto lock = Lock();
  Socket s{address};
  int result = OpenUdpSocket(s.fd, s.address, bufferBytes, Sharing::kNone);
  if (result == 0 && AttachFilter(s.fd, kNothing) != 0) result = -errno;
  if (result == 0 && !hasChecksum) result = SetChecksum(s.fd, s.isIpv6, Checksum::kZero);
  sockaddr_in6 bound{};
  socklen_t size = sizeof bound;
  if (result == 0 && getsockname(s.fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) result = -errno;
  if (result != 0) {
    CloseFd(s.fd);
    return result;
  }
  s.port = PortOf(bound);
  senders_.push_back(s);
  return s.port;
}

int UdpSockets::JoinGroup(const sockaddr_in6& group, int bufferBytes, int ifindex) {
  const auto lock = Lock();
  Socket s{group};
  s.isGroup = true;
  int result = OpenUdpSocket(s.fd, s.address, bufferBytes, Sharing::kGroup);
  if (result == 0)
    result = SetMembership(s.fd, static_cast<const uint8_t*>(IpOf(s.address)), s.isIpv6, ifindex, true);
  const int fd = s.fd;
  result = Keep(s, result);
  return result == 0 ? fd : result;
}

/// Keeps a socket that was opened, or closes it. @returns `result`
int UdpSockets::Keep(Socket& s, int result) {
  if (result == 0) {
    SetGro(s.fd);
    sockets_.push_back(s);
  } else {
    CloseFd(s.fd);
  }
  return result;
}

void UdpSockets::Drop(const uint8_t* ip, size_t bytes, bool isGroup) {
  const auto lock = Lock();
  auto found = std::find_if(sockets_.begin(), sockets_.end(), [&](const Socket& s) {
    return s.isGroup == isGroup && HasIp(s.address, ip, bytes);
  });
  if (found == sockets_.end()) return;
  CloseFd(found->fd);
  sockets_.erase(found);
}

bool UdpSockets::SupportsGso() const {
  const int off = 0;
  return !sockets_.empty() && setsockopt(sockets_[0].fd, IPPROTO_UDP, UDP_SEGMENT, &off, sizeof off) == 0 &&
         setsockopt(sockets_[0].fd, IPPROTO_UDP, UDP_GRO, &off, sizeof off) == 0;
}

std::vector<int> UdpSockets::Fds() const {
  std::vector<int> fds;
  for (const Socket& s : sockets_) fds.push_back(s.fd);
  return fds;
}

int UdpSockets::FdOf(const uint8_t* ip, size_t bytes) const {
  for (const Socket& s : sockets_)
    if (!s.isGroup && HasIp(s.address, ip, bytes)) return s.fd;
  return -1;
}

void UdpSockets::Attach(uint8_t* memory, uint64_t bytes, const FrameLayout& layout) {
  frames_.Attach(memory, bytes, layout);
  for (Socket& s : sockets_) SetGro(s.fd);
}

/// Without UDP_GRO the kernel segments super-packets itself.
void UdpSockets::SetGro(int fd) const {
  const int gro = frames_.slotBytes >= kCoalescedBytes;
  setsockopt(fd, IPPROTO_UDP, UDP_GRO, &gro, sizeof gro);
}

FrameCounters UdpSockets::Counters() {
  const auto lock = Lock();
  FrameCounters counters = counters_;
  if (!sockets_.empty()) counters.rxBufferBytes = static_cast<uint64_t>(ReceiveBuffer(sockets_[0].fd));
  return counters;
}

void UdpSockets::Close() {
  Revoke();
  CloseAll();
  frames_.Detach();
}

void UdpSockets::CloseAll() {
  for (auto* sockets : {&sockets_, &senders_}) {
    for (Socket& s : *sockets) CloseFd(s.fd);
    sockets->clear();
  }
}

uint32_t UdpSockets::SendBatch(uint32_t at, uint32_t end, bool& busy) {
  const auto lock = Lock();
  // Nobody can receive from an address without a socket.
  if (CanSend()) return SendNextBatch(at, end, busy);
  counters_.txInvalid += end - at;
  return end;
}

uint32_t UdpSockets::ReceiveReady(bool hasOthers) {
  const auto lock = Lock();
  return ReceiveLocalFrames(hasOthers);
}

// All messages of a batch have one source address: that of the socket that sends them.
FrameSocket::AddResult UdpSockets::AddBurst(GsoBurst& burst) {
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

/// Returns the socket that sends from the source address and port of a frame. A card without senders writes the port of
/// the sockets that receive into all of its frames.
const UdpSockets::Socket* UdpSockets::Owner(const Datagram& datagram) const {
  const size_t bytes = datagram.isIpv6 ? 16 : 4;
  for (const Socket& s : senders_)
    if (s.port == datagram.sourcePort && HasIp(s.address, datagram.source, bytes)) return &s;
  for (const Socket& s : sockets_)
    if (!s.isGroup && HasIp(s.address, datagram.source, bytes)) return &s;
  return nullptr;
}

/// One batch of each socket at most.
uint32_t UdpSockets::ReceiveFrames() {
  uint32_t received = 0;
  if (frames_.IsAttached())
    for (size_t i = 0; i < sockets_.size(); i++)
      received += ReceiveFromSocket(sockets_[(turn_ + i) % sockets_.size()]);
  turn_++;
  return received;
}

uint32_t UdpSockets::ReceiveFromSocket(Socket& socket) {
  receiving_ = &socket;
  return ReceiveFrom(socket.fd);
}

uint32_t UdpSockets::ReceiveLocalFrames(bool hasOthers) {
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
bool UdpSockets::IsLocalDue(bool hasOthers) {
  const auto now = Clock::now();
  const bool hasWaited = endedWaits != waits_;
  const bool isPause = hasWaited || now - localCalledAt_ >= kLocalPause;
  pollingCalls_ = isPause ? 0 : pollingCalls_ + 1;
  waits_ = endedWaits;
  localCalledAt_ = now;
  if ((!hasWaited || hasOthers) && now - localLookedAt_ < LocalInterval(now)) return false;
  localLookedAt_ = now;
  return true;
}

std::chrono::microseconds UdpSockets::LocalInterval(Clock::time_point now) const {
  if (pollingCalls_ < kPollingCalls) return kLocalBusy;
  return now - localReceivedAt_ < kLocalActive ? std::chrono::microseconds{0} : kLocalPolling;
}

void UdpSockets::PrepareReceive(uint32_t i, uint8_t* slot) {
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

bool UdpSockets::CompleteReceive(uint32_t i, Descriptor& to) {
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

UdpSockets::Control UdpSockets::ReadControl(msghdr& header) {
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
