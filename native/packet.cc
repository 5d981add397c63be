// A packet socket on one interface: whole Ethernet frames, straight between the kernel and the card's slots. Each has a
// virtio_net_hdr in front (PACKET_VNET_HDR), which says whether it stands for many.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "carrier.h"
#include "group.h"
#include "ports.h"
#include "roce_filter.h"
#include "splitter.h"

namespace {

constexpr uint32_t kTagBytes = 4;
constexpr uint32_t kMacsBytes = 12;
constexpr uint8_t kNoMac[ETH_ALEN] = {};
constexpr uint32_t kUdpBytes = 8;
constexpr uint32_t kUdpChecksum = 6;

/// virtio_net_hdr; its own header is not for C++. Byte order of the host.
struct Offload {
  uint8_t flags;
  uint8_t type;
  uint16_t headerBytes;
  uint16_t segmentBytes;
  uint16_t checksumStart;
  uint16_t checksumOffset;
};
static_assert(sizeof(Offload) == 10);
constexpr uint8_t kNeedsChecksum = 1;  // VIRTIO_NET_HDR_F_NEEDS_CSUM
constexpr uint8_t kUdpSegments = 5;    // VIRTIO_NET_HDR_GSO_UDP_L4, since Linux 6.2
constexpr Offload kNoOffload = {};

/// What stands before the payloads of a run.
struct Super {
  Offload offload;
  uint8_t headers[kMostHeaders];
};

class PacketSocketObject : public Napi::ObjectWrap<PacketSocketObject>, Carrier {
 public:
  using Self = PacketSocketObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "PacketSocket",
                       {InstanceMethod<&Self::Open>("open"), InstanceMethod<&Self::HoldPort>("holdPort"),
                        InstanceMethod<&Self::ReleasePort>("releasePort"),
                        InstanceMethod<&Self::JoinGroup>("joinGroup"), InstanceMethod<&Self::LeaveGroup>("leaveGroup"),
                        InstanceMethod<&Self::Attach>("attach"), InstanceMethod<&Self::LendOut>("lend"),
                        InstanceMethod<&Self::Send>("send"), InstanceMethod<&Self::Receive>("receive"),
                        InstanceMethod<&Self::Counters>("counters"), InstanceMethod<&Self::Fd>("fd"),
                        InstanceMethod<&Self::Close>("close")});
  }
  explicit PacketSocketObject(const Napi::CallbackInfo& info) : ObjectWrap(info) {}
  ~PacketSocketObject() override {
    Withdraw();
    CloseAll();
  }

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
        setsockopt(fd_, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on) != 0 ||
        setsockopt(fd_, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0)
      return -errno;
    SetReceiveBuffer(fd_, bufferBytes);
    SetSendBuffer(fd_, bufferBytes);
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = ifindex;
    return bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? 0 : -errno;
  }

  // holdPort(address of 4 or 16 bytes, port, scope id): 0 or -errno
  Napi::Value HoldPort(const Napi::CallbackInfo& info) {
    const auto held = Hold();
    return Napi::Number::New(info.Env(), ports_.Hold(info));
  }

  // releasePort(address of 4 or 16 bytes)
  void ReleasePort(const Napi::CallbackInfo& info) {
    const auto held = Hold();
    ports_.Release(info);
  }

  // joinGroup(address of 4 or 16 bytes, its MAC, ifindex): 0 or -errno. The kernel joins, so that switches and routers
  // hear of it, and the interface lets the MAC in even where the kernel has no address to join with.
  Napi::Value JoinGroup(const Napi::CallbackInfo& info) {
    const auto held = Hold();
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
    const auto held = Hold();
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

  void Attach(const Napi::CallbackInfo& info) {
    frames_.Attach(info);
    const bool coalesces = frames_.slotBytes >= kCoalescedBytes;
    ports_.Coalesce(coalesces);
    if (!coalesces) splitter_.Open();
  }

  // lend(): the number of the loan
  Napi::Value LendOut(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), Lend()); }

  // send(): descriptors taken off the transmit ring, ~ of that when the kernel refuses runs from now on
  Napi::Value Send(const Napi::CallbackInfo& info) {
    const auto held = Hold();
    return Napi::Number::New(info.Env(), SendFrames());
  }

  int32_t SendFrames() override { return fd_ < 0 ? 0 : SendAll(); }

  int SendFd() const override { return fd_; }

  Fate Add(Run& run) override {
    const bool isInvalid = run.frame == nullptr || run.frameBytes < ETH_HLEN;
    if (isInvalid || IsForUs(run.frame)) {
      if (!out_.IsEmpty()) return Fate::kWaits;
      if (isInvalid) {
        counters_.txInvalid++;
        run.frames = 1;
      } else {
        Loop(run);
      }
      return Fate::kDone;
    }
    out_.Begin();
    Datagram datagram;
    if (run.frames > 1 && TakeApart(run.frame, run.frameBytes, datagram)) {
      PutTogether(run, datagram);
    } else {
      run.frames = 1;
      out_.Put(&kNoOffload, sizeof kNoOffload);
      out_.Put(run.frame, run.frameBytes);
    }
    return Fate::kAdded;
  }

  // One datagram, as UDP_SEGMENT makes it: the kernel, or the interface, makes frames of it again.
  void PutTogether(Run& run, const Datagram& datagram) {
    Super& super = supers_[out_.Count()];
    out_.Put(&super, sizeof super.offload + datagram.headerBytes);
    const uint32_t bytes = PutPayloads(run, datagram.headerBytes);
    super.offload = {};
    memcpy(super.headers, run.frame, datagram.headerBytes);
    if (run.frames == 1) return;
    SetPayloadBytes(super.headers, datagram, bytes);
    SetPseudoSum(super.headers, datagram);
    super.offload.flags = kNeedsChecksum;
    super.offload.type = kUdpSegments;
    super.offload.headerBytes = static_cast<uint16_t>(datagram.headerBytes);
    super.offload.segmentBytes = static_cast<uint16_t>(run.frameBytes - datagram.headerBytes);
    super.offload.checksumStart = static_cast<uint16_t>(datagram.headerBytes - kUdpBytes);
    super.offload.checksumOffset = kUdpChecksum;
  }

  // An interface does not give its own frames back; a card does. The loopback interface (address zero) does it itself.
  bool IsForUs(const uint8_t* frame) const {
    return memcmp(frame, mac_, ETH_ALEN) == 0 && memcmp(mac_, kNoMac, ETH_ALEN) != 0;
  }

  void Loop(const Run& run) {
    for (uint32_t k = 0; k < run.frames; k++) {
      const Descriptor& d = frames_.tx[run.first + k];
      counters_.txFrames++;
      counters_.txBytes += d.len;
      Return(d);
    }
  }

  // What was sent to a group that this card is in comes back to it, as IP_MULTICAST_LOOP does for sockets.
  void OnSent(const Run& run) override {
    if (groups_.empty() || !(run.frame[0] & 1) || memcmp(mac_, kNoMac, ETH_ALEN) == 0) return;
    for (const Group& group : groups_) {
      if (memcmp(run.frame, group.mac, ETH_ALEN) != 0) continue;
      for (uint32_t k = 0; k < run.frames; k++) Return(frames_.tx[run.first + k]);
      return;
    }
  }

  void Return(const Descriptor& sent) {
    Ring& ring = frames_.rx;
    if (ring.Free() == 0 || sent.len > frames_.slotBytes) {
      counters_.rxDropped++;
      return;
    }
    const uint32_t at = ring.Producer();
    uint8_t* slot = frames_.At(ring[at].addr, frames_.slotBytes);
    if (slot == nullptr) return;
    memcpy(slot, frames_.At(sent.addr, sent.len), sent.len);
    ring[at].len = sent.len;
    ring[at].options = 0;
    ring.SetProducer(at + 1);
    CountReceived(1, sent.len);
  }

  // receive(): descriptors put into the receive ring, one batch at most
  Napi::Value Receive(const Napi::CallbackInfo& info) {
    const auto held = Hold();
    return Napi::Number::New(info.Env(), ReceiveFrames());
  }

  uint32_t ReceiveFrames() override {
    if (fd_ < 0 || !frames_.IsAttached()) return 0;
    if (!splitter_.IsOpen()) return ReceiveFrom(fd_);
    uint32_t received = 0;
    do received += splitter_.Pump(frames_, counters_);
    while (splitter_.IsEmpty() && received < kBatch && ReceiveFrom(fd_) > 0);
    return received;
  }

  Frames& Into() override { return splitter_.IsOpen() ? splitter_.Large() : frames_; }

  void Offer(uint32_t i, uint8_t* slot) override {
    into_[i][0] = {&offloads_[i], sizeof offloads_[i]};
    // Room is left for a tag that has to be put back.
    into_[i][1] = {slot, Into().slotBytes - kTagBytes};
    msghdr& header = received_[i].msg_hdr;
    header = {};
    header.msg_iov = into_[i];
    header.msg_iovlen = 2;
    header.msg_control = control_[i];
    header.msg_controllen = sizeof control_[i];
  }

  bool Accept(uint32_t i, Descriptor& to) override {
    auto frame = static_cast<uint8_t*>(into_[i][1].iov_base);
    to.len = received_[i].msg_len - sizeof offloads_[i];
    to.len += RestoreTag(frame, to.len, received_[i].msg_hdr);
    to.options = 0;
    Datagram datagram;
    const bool isSuper = offloads_[i].type == kUdpSegments;
    if ((isSuper || Into().foldsIcrc) && TakeApart(frame, to.len, datagram)) {
      const bool isAll = datagram.headerBytes + datagram.payloadBytes == to.len;
      // who sends raw frames may claim anything; behind the last segment of a super-packet there is nothing
      if (isSuper && isAll) return AcceptSuper(datagram.headerBytes, offloads_[i].segmentBytes, to);
      // a single frame may go on behind the datagram
      FoldIcrcs(datagram.payload, datagram.payloadBytes, 0, to);
    }
    CountReceived(1, to.len);
    return true;
  }

  // Before Linux 6.2 a packet socket cannot be told of super-packets of UDP. The kernel coalesces no more when no socket
  // asks for it.
  void OnReceiveError(int error) override {
    if (error == EINVAL) ports_.Coalesce(false);
  }

  // The kernel hands an 802.1Q tag over beside the frame. @returns bytes added
  static uint32_t RestoreTag(uint8_t* frame, uint32_t bytes, msghdr& header) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA) continue;
      tpacket_auxdata aux;
      memcpy(&aux, CMSG_DATA(c), sizeof aux);
      if (!(aux.tp_status & TP_STATUS_VLAN_VALID) || bytes < kMacsBytes) return 0;
      const uint16_t tag[2] = {
          htons(aux.tp_status & TP_STATUS_VLAN_TPID_VALID ? aux.tp_vlan_tpid : ETH_P_8021Q), htons(aux.tp_vlan_tci)};
      memmove(frame + kMacsBytes + kTagBytes, frame + kMacsBytes, bytes - kMacsBytes);
      memcpy(frame + kMacsBytes, tag, sizeof tag);
      return kTagBytes;
    }
    return 0;
  }

  Napi::Value Counters(const Napi::CallbackInfo& info) {
    const auto held = Hold();
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
    Withdraw();
    CloseAll();
    frames_.Detach();
  }

  void CloseAll() {
    CloseFd(fd_);
    ports_.Close();
    splitter_.Close();
    for (Group& group : groups_) CloseFd(group.fd);
    groups_.clear();
  }

  int fd_ = -1;
  HeldPorts ports_;
  std::vector<Group> groups_;
  uint8_t mac_[ETH_ALEN] = {};
  Splitter splitter_;
  Super supers_[kBatch];
  Offload offloads_[kBatch];
  iovec into_[kBatch][2];
  alignas(cmsghdr) uint8_t control_[kBatch][CMSG_SPACE(sizeof(tpacket_auxdata))];
};

}  // namespace

Napi::Function PacketSocket(Napi::Env env) { return PacketSocketObject::Define(env); }
