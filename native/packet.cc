// A packet socket on one interface: whole Ethernet frames, straight between the kernel and the card's slots.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "frames.h"
#include "group.h"
#include "roce_filter.h"

namespace {

constexpr uint32_t kTagBytes = 4;
constexpr uint32_t kMacsBytes = 12;
constexpr uint8_t kNoMac[ETH_ALEN] = {};

class PacketSocketObject : public Napi::ObjectWrap<PacketSocketObject> {
 public:
  using Self = PacketSocketObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "PacketSocket",
                       {InstanceMethod<&Self::Open>("open"), InstanceMethod<&Self::HoldPort>("holdPort"),
                        InstanceMethod<&Self::ReleasePort>("releasePort"),
                        InstanceMethod<&Self::JoinGroup>("joinGroup"), InstanceMethod<&Self::LeaveGroup>("leaveGroup"),
                        InstanceMethod<&Self::Attach>("attach"), InstanceMethod<&Self::Send>("send"),
                        InstanceMethod<&Self::Receive>("receive"), InstanceMethod<&Self::Counters>("counters"),
                        InstanceMethod<&Self::Fd>("fd"), InstanceMethod<&Self::Close>("close")});
  }
  explicit PacketSocketObject(const Napi::CallbackInfo& info) : ObjectWrap(info) {}
  ~PacketSocketObject() override { CloseAll(); }

 private:
  // open(ifindex, mac, receiveBufferBytes): 0 or -errno
  Napi::Value Open(const Napi::CallbackInfo& info) {
    int ifindex = info[0].As<Napi::Number>();
    memcpy(mac_, info[1].As<Napi::Uint8Array>().Data(), sizeof mac_);
    int result = OpenSocket(ifindex, info[2].As<Napi::Number>());
    if (result < 0) CloseAll();
    return Napi::Number::New(info.Env(), result);
  }

  int OpenSocket(int ifindex, int bufferBytes) {
    // Protocol 0: nothing arrives before the filter stands and the socket is bound.
    fd_ = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return -errno;
    const int on = 1;
    if (AttachFilter(fd_, kRoceFilter) != 0 ||
        setsockopt(fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
        setsockopt(fd_, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on) != 0)
      return -errno;
    SetReceiveBuffer(fd_, bufferBytes);
    SetSendBuffer(fd_, bufferBytes);
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = ifindex;
    return bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? 0 : -errno;
  }

  // holdPort(address of 4 or 16 bytes, port, scope id): 0 or -errno. A socket that is never read keeps the kernel from
  // answering "port unreachable".
  Napi::Value HoldPort(const Napi::CallbackInfo& info) {
    auto ip = info[0].As<Napi::Uint8Array>();
    const uint16_t port = htons(info[1].As<Napi::Number>().Uint32Value());
    sockaddr_in6 address{};
    if (ip.ByteLength() == 16) {
      address.sin6_family = AF_INET6;
      address.sin6_port = port;
      address.sin6_scope_id = info[2].As<Napi::Number>();
      memcpy(&address.sin6_addr, ip.Data(), 16);
    } else {
      auto& address4 = reinterpret_cast<sockaddr_in&>(address);
      address4.sin_family = AF_INET;
      address4.sin_port = port;
      memcpy(&address4.sin_addr, ip.Data(), 4);
    }
    return Napi::Number::New(info.Env(), Sink(reinterpret_cast<sockaddr*>(&address)));
  }

  // releasePort(address of 4 or 16 bytes): nothing happens when it is not held
  void ReleasePort(const Napi::CallbackInfo& info) {
    auto ip = info[0].As<Napi::Uint8Array>();
    for (size_t i = 0; i < sinks_.size(); i++) {
      sockaddr_in6 bound{};
      socklen_t size = sizeof bound;
      if (getsockname(sinks_[i], reinterpret_cast<sockaddr*>(&bound), &size) != 0) continue;
      const bool isIpv6 = bound.sin6_family == AF_INET6;
      const void* address = isIpv6 ? static_cast<const void*>(&bound.sin6_addr)
                                   : &reinterpret_cast<const sockaddr_in&>(bound).sin_addr;
      if (ip.ByteLength() != (isIpv6 ? 16u : 4u) || memcmp(address, ip.Data(), ip.ByteLength()) != 0) continue;
      CloseFd(sinks_[i]);
      sinks_.erase(sinks_.begin() + static_cast<long>(i));
      return;
    }
  }

  int Sink(const sockaddr* address) {
    const bool isIpv6 = address->sa_family == AF_INET6;
    int fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    const int on = 1;
    SetReceiveBuffer(fd, 0);
    // An address whose duplicate detection still runs will do.
    if (isIpv6) setsockopt(fd, IPPROTO_IPV6, kIpv6FreeBind, &on, sizeof on);
    // Several cards may hold the port of one address.
    if (AttachFilter(fd, kNothing) != 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0 ||
        bind(fd, address, isIpv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)) != 0) {
      const int error = errno;
      CloseFd(fd);
      return -error;
    }
    sinks_.push_back(fd);
    return 0;
  }

  // joinGroup(address of 4 or 16 bytes, its MAC, ifindex): 0 or -errno. The kernel joins, so that switches and routers
  // hear of it, and the interface lets the MAC in even where the kernel has no address to join with.
  Napi::Value JoinGroup(const Napi::CallbackInfo& info) {
    Group group = GroupOf(info);
    const int ifindex = info[2].As<Napi::Number>();
    const int family = group.isIpv6 ? AF_INET6 : AF_INET;
    int result = group.fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (result >= 0) result = SetMembership(group.fd, group.address, group.isIpv6, ifindex, true);
    if (result == 0) result = SetFilter(group.mac, ifindex, PACKET_ADD_MEMBERSHIP);
    if (result == 0) {
      groups_.push_back(group);
    } else {
      CloseFd(group.fd);
    }
    return Napi::Number::New(info.Env(), result);
  }

  // leaveGroup(address of 4 or 16 bytes, its MAC, ifindex)
  void LeaveGroup(const Napi::CallbackInfo& info) {
    const Group group = GroupOf(info);
    auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.isIpv6 == group.isIpv6 && memcmp(g.address, group.address, sizeof g.address) == 0;
    });
    if (found == groups_.end()) return;
    CloseFd(found->fd);
    groups_.erase(found);
    SetFilter(group.mac, info[2].As<Napi::Number>(), PACKET_DROP_MEMBERSHIP);
  }

  struct Group {
    bool isIpv6;
    uint8_t address[16];
    uint8_t mac[ETH_ALEN];
    int fd;
  };

  static Group GroupOf(const Napi::CallbackInfo& info) {
    auto ip = info[0].As<Napi::Uint8Array>();
    Group group{};
    group.isIpv6 = ip.ByteLength() == sizeof group.address;
    group.fd = -1;
    memcpy(group.address, ip.Data(), ip.ByteLength());
    memcpy(group.mac, info[1].As<Napi::Uint8Array>().Data(), sizeof group.mac);
    return group;
  }

  int SetFilter(const uint8_t* mac, int ifindex, int option) {
    packet_mreq request{};
    request.mr_ifindex = ifindex;
    request.mr_type = PACKET_MR_MULTICAST;
    request.mr_alen = ETH_ALEN;
    memcpy(request.mr_address, mac, ETH_ALEN);
    return setsockopt(fd_, SOL_PACKET, option, &request, sizeof request) == 0 ? 0 : -errno;
  }

  void Attach(const Napi::CallbackInfo& info) { frames_.Attach(info); }

  // send(): descriptors taken off the transmit ring
  Napi::Value Send(const Napi::CallbackInfo& info) {
    if (fd_ < 0 || !frames_.IsAttached()) return Napi::Number::New(info.Env(), 0);
    Ring& ring = frames_.tx;
    const uint32_t first = ring.Consumer(), filled = ring.Producer() - first;
    uint32_t done = 0;
    for (bool busy = false; done < filled && !busy;) done += SendBatch(first + done, filled - done, busy);
    ring.SetConsumer(first + done);
    return Napi::Number::New(info.Env(), done);
  }

  uint32_t SendBatch(uint32_t first, uint32_t filled, bool& busy) {
    uint32_t place[kBatch];
    uint32_t taken = 0, count = 0;
    for (; taken < filled && count < kBatch; taken++) {
      const Descriptor& d = frames_.tx[first + taken];
      if (d.len == 0) continue;
      uint8_t* frame = frames_.At(d.addr, d.len);
      const bool isInvalid = frame == nullptr || d.len < ETH_HLEN;
      if (isInvalid || IsForUs(frame)) {
        // Not behind frames which may yet have to stay: it would be seen again.
        if (count > 0) break;
        if (isInvalid) {
          counters_.txInvalid++;
        } else {
          Loop(frame, d.len);
        }
      } else {
        iov_[count] = {frame, d.len};
        messages_[count].msg_hdr = {};
        messages_[count].msg_hdr.msg_iov = &iov_[count];
        messages_[count].msg_hdr.msg_iovlen = 1;
        place[count++] = taken;
      }
    }
    if (count == 0) return taken;
    int sent = sendmmsg(fd_, messages_, count, 0);
    if (sent < 0) {
      busy = counters_.TxRefused(errno);
      return place[0] + (busy ? 0 : 1);
    }
    for (int i = 0; i < sent; i++) counters_.txBytes += iov_[i].iov_len;
    counters_.txFrames += sent;
    for (int i = 0; i < sent && !groups_.empty(); i++) LoopToGroup(iov_[i]);
    return static_cast<uint32_t>(sent) == count ? taken : place[sent];
  }

  // An interface does not give its own frames back; a card does. The loopback interface (address zero) does it itself.
  bool IsForUs(const uint8_t* frame) const {
    return memcmp(frame, mac_, ETH_ALEN) == 0 && memcmp(mac_, kNoMac, ETH_ALEN) != 0;
  }

  void Loop(const uint8_t* frame, uint32_t len) {
    counters_.txFrames++;
    counters_.txBytes += len;
    Return(frame, len);
  }

  // What was sent to a group that this card is in comes back to it, as IP_MULTICAST_LOOP does for sockets.
  void LoopToGroup(const iovec& sent) {
    const uint8_t* frame = static_cast<const uint8_t*>(sent.iov_base);
    if (!(frame[0] & 1) || memcmp(mac_, kNoMac, ETH_ALEN) == 0) return;
    for (const Group& group : groups_) {
      if (memcmp(frame, group.mac, ETH_ALEN) == 0) return Return(frame, sent.iov_len);
    }
  }

  void Return(const uint8_t* frame, uint32_t len) {
    Ring& ring = frames_.rx;
    if (ring.Free() == 0 || len > frames_.slotBytes) {
      counters_.rxDropped++;
      return;
    }
    const uint32_t at = ring.Producer();
    uint8_t* slot = frames_.At(ring[at].addr, frames_.slotBytes);
    if (slot == nullptr) return;
    memcpy(slot, frame, len);
    ring[at].len = len;
    ring[at].options = 0;
    ring.SetProducer(at + 1);
    counters_.rxFrames++;
    counters_.rxBytes += len;
  }

  // receive(): frames put into the receive ring, one batch at most
  Napi::Value Receive(const Napi::CallbackInfo& info) {
    uint32_t received = 0;
    if (fd_ >= 0 && frames_.IsAttached()) {
      received = ReceiveBatch(kFewFrames);
      if (received == kFewFrames) received += ReceiveBatch(kBatch - kFewFrames);
    }
    return Napi::Number::New(info.Env(), received);
  }

  uint32_t ReceiveBatch(uint32_t limit) {
    Ring& ring = frames_.rx;
    const uint32_t first = ring.Producer();
    uint32_t count = std::min(ring.Free(), limit);
    for (uint32_t i = 0; i < count; i++) {
      uint8_t* slot = frames_.At(ring[first + i].addr, frames_.slotBytes);
      if (slot == nullptr) count = i;
      // Room is left for a tag that has to be put back.
      iov_[i] = {slot, frames_.slotBytes - kTagBytes};
      msghdr& header = messages_[i].msg_hdr;
      header = {};
      header.msg_iov = &iov_[i];
      header.msg_iovlen = 1;
      header.msg_control = control_[i];
      header.msg_controllen = sizeof control_[i];
    }
    if (count == 0) return 0;
    int received = recvmmsg(fd_, messages_, count, 0, nullptr);
    if (received < 0) {
      counters_.RxFailed(errno);
      return 0;
    }
    uint32_t good = 0;
    for (int i = 0; i < received; i++) {
      if (messages_[i].msg_hdr.msg_flags & MSG_TRUNC) {
        counters_.rxTruncated++;
        continue;
      }
      Descriptor& to = ring[first + good];
      // Both slots are free, so a frame behind a bad one may bring its slot along.
      std::swap(to.addr, ring[first + i].addr);
      to.len = messages_[i].msg_len + RestoreTag(static_cast<uint8_t*>(iov_[i].iov_base), messages_[i]);
      to.options = 0;
      counters_.rxBytes += to.len;
      good++;
    }
    counters_.rxFrames += good;
    ring.SetProducer(first + good);
    return good;
  }

  // The kernel hands an 802.1Q tag over beside the frame. @returns bytes added
  static uint32_t RestoreTag(uint8_t* frame, mmsghdr& message) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&message.msg_hdr); c != nullptr; c = CMSG_NXTHDR(&message.msg_hdr, c)) {
      if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA) continue;
      tpacket_auxdata aux;
      memcpy(&aux, CMSG_DATA(c), sizeof aux);
      if (!(aux.tp_status & TP_STATUS_VLAN_VALID) || message.msg_len < kMacsBytes) return 0;
      const uint16_t tag[2] = {
          htons(aux.tp_status & TP_STATUS_VLAN_TPID_VALID ? aux.tp_vlan_tpid : ETH_P_8021Q), htons(aux.tp_vlan_tci)};
      memmove(frame + kMacsBytes + kTagBytes, frame + kMacsBytes, message.msg_len - kMacsBytes);
      memcpy(frame + kMacsBytes, tag, sizeof tag);
      return kTagBytes;
    }
    return 0;
  }

  Napi::Value Counters(const Napi::CallbackInfo& info) {
    tpacket_stats stats{};
    socklen_t size = sizeof stats;
    // Reading clears the kernel's count.
    if (fd_ >= 0 && getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0)
      counters_.rxDropped += stats.tp_drops;
    auto object = counters_.ToObject(info.Env());
    object.Set("rx_buffer_bytes", fd_ < 0 ? 0 : ReceiveBuffer(fd_));
    return object;
  }

  Napi::Value Fd(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), fd_); }

  void Close(const Napi::CallbackInfo&) {
    CloseAll();
    frames_.Detach();
  }

  void CloseAll() {
    CloseFd(fd_);
    for (int& sink : sinks_) CloseFd(sink);
    sinks_.clear();
    for (Group& group : groups_) CloseFd(group.fd);
    groups_.clear();
  }

  int fd_ = -1;
  std::vector<int> sinks_;
  std::vector<Group> groups_;
  uint8_t mac_[ETH_ALEN] = {};
  Frames frames_;
  FrameCounters counters_;
  mmsghdr messages_[kBatch];
  iovec iov_[kBatch];
  alignas(cmsghdr) uint8_t control_[kBatch][CMSG_SPACE(sizeof(tpacket_auxdata))];
};

}  // namespace

Napi::Function PacketSocket(Napi::Env env) { return PacketSocketObject::Define(env); }
