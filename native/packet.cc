// The packet socket (packet(7)) of one interface: whole Ethernet frames, directly between the kernel and the card's
// slots. Each message has a virtio_net_hdr in front (PACKET_VNET_HDR), which says whether its frame is a super-packet.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "framesocket.h"
#include "localsockets.h"
#include "packetgroups.h"
#include "packetring.h"
#include "ports.h"
#include "roce_filter.h"
#include "grosplitter.h"

namespace {

constexpr uint32_t kTagBytes = 4;
constexpr uint32_t kMacsBytes = 12;
constexpr uint8_t kNoMac[ETH_ALEN] = {};
/// Calls of receive without a frame after which the socket's error is read.
constexpr uint32_t kIdleCalls = 256;
/// Most descriptors that are looked through for the end of a run of local frames, or of others.
constexpr uint32_t kMaxRun = 320;
constexpr uint32_t kUdpBytes = 8;
constexpr uint32_t kUdpChecksum = 6;

/// virtio_net_hdr, whose own header file is not for C++. Fields are in host byte order.
struct VnetHeader {
  uint8_t flags;
  uint8_t type;
  uint16_t headerBytes;
  uint16_t segmentBytes;
  uint16_t checksumStart;
  uint16_t checksumOffset;
};
static_assert(sizeof(VnetHeader) == 10);
constexpr uint8_t kNeedsChecksum = 1;  // VIRTIO_NET_HDR_F_NEEDS_CSUM
constexpr uint8_t kUdpSegments = 5;    // VIRTIO_NET_HDR_GSO_UDP_L4, since Linux 6.2
constexpr VnetHeader kNoVnetHeader = {};

/// The headers in front of the payloads of a burst.
struct SuperHeader {
  VnetHeader vnet;
  uint8_t headers[kMaxHeaderBytes];
};

class PacketSocketObject : public Napi::ObjectWrap<PacketSocketObject>, FrameSocket {
 public:
  using Self = PacketSocketObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "PacketSocket",
                       {InstanceMethod<&Self::Open>("open"), InstanceMethod<&Self::Steer>("steer"),
                        InstanceMethod<&Self::Share>("share"), InstanceMethod<&Self::BindPort>("bindPort"),
                        InstanceMethod<&Self::UnbindPort>("unbindPort"),
                        InstanceMethod<&Self::JoinGroup>("joinGroup"), InstanceMethod<&Self::LeaveGroup>("leaveGroup"),
                        InstanceMethod<&Self::Attach>("attach"), InstanceMethod<&Self::MakeRing>("makeRing"),
                        InstanceMethod<&Self::MapRing>("mapRing"),
                        InstanceMethod<&Self::TransferOut>("transfer"),
                        InstanceMethod<&Self::Send>("send"), InstanceMethod<&Self::Receive>("receive"),
                        InstanceMethod<&Self::Counters>("counters"), InstanceMethod<&Self::Fd>("fd"),
                        InstanceMethod<&Self::Close>("close")});
  }
  explicit PacketSocketObject(const Napi::CallbackInfo& info) : ObjectWrap(info) {}
  ~PacketSocketObject() override {
    Revoke();
    CloseAll();
  }

 private:
  // open(ifindex, mac, bufferBytes): 0 or -errno
  Napi::Value Open(const Napi::CallbackInfo& info) {
    int ifindex = info[0].As<Napi::Number>();
    memcpy(mac_, info[1].As<Napi::Uint8Array>().Data(), sizeof mac_);
    int result = OpenSocket(ifindex, info[2].As<Napi::Number>());
    if (result < 0) CloseAll();
    return Napi::Number::New(info.Env(), result);
  }

  int OpenSocket(int ifindex, int bufferBytes) {
    // Protocol 0: nothing arrives before the filter is attached and the socket is bound.
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

  // steer(mask, value): 0 or -errno
  Napi::Value Steer(const Napi::CallbackInfo& info) {
    const auto program = SteeringFilter(info[0].As<Napi::Number>(), info[1].As<Napi::Number>());
    const int result = AttachFilter(fd_, program.data(), program.size()) == 0 ? 0 : -errno;
    return Napi::Number::New(info.Env(), result);
  }

  // share(UdpSockets, slot; 0 = none): 0 or -errno
  Napi::Value Share(const Napi::CallbackInfo& info) {
    localObject_ = Napi::Persistent(info[0].As<Napi::Object>());
    local_ = LocalSocketsOf(info[0]);
    const uint32_t slot = info[1].As<Napi::Number>();
    const auto program = SharedFilter(slot);
    const int result = slot == 0 ? AttachFilter(fd_, kNothing) : AttachFilter(fd_, program.data(), program.size());
    if (result != 0) return Napi::Number::New(info.Env(), -errno);
    // what has arrived before may be for others
    uint8_t byte;
    while (recv(fd_, &byte, sizeof byte, MSG_DONTWAIT | MSG_TRUNC) >= 0) {
    }
    return Napi::Number::New(info.Env(), 0);
  }

  // bindPort(address of 4 or 16 bytes, port, scope id, whether others may bind it): 0 or -errno
  Napi::Value BindPort(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    return Napi::Number::New(info.Env(), ports_.Bind(info));
  }

  // unbindPort(address of 4 or 16 bytes)
  void UnbindPort(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    ports_.Unbind(info);
  }

  // joinGroup(address of 4 or 16 bytes, its MAC, ifindex): 0 or -errno
  Napi::Value JoinGroup(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    return Napi::Number::New(info.Env(), groups_.Join(fd_, GroupOf(info), info[2].As<Napi::Number>()));
  }

  // leaveGroup(address of 4 or 16 bytes, its MAC, ifindex)
  void LeaveGroup(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    groups_.Leave(fd_, GroupOf(info), info[2].As<Napi::Number>());
  }

  static PacketGroup GroupOf(const Napi::CallbackInfo& info) {
    auto ip = info[0].As<Napi::Uint8Array>();
    PacketGroup group;
    group.isIpv6 = ip.ByteLength() == sizeof group.address;
    memcpy(group.address, ip.Data(), ip.ByteLength());
    memcpy(group.mac, info[1].As<Napi::Uint8Array>().Data(), sizeof group.mac);
    return group;
  }

  void Attach(const Napi::CallbackInfo& info) {
    frames_.Attach(info);
    const bool gro = frames_.slotBytes >= kCoalescedBytes;
    ports_.SetGro(gro);
    if (!gro) splitter_.Open();
  }

  // makeRing(bytes, bytes of a frame): promise of 0 or -errno
  Napi::Value MakeRing(const Napi::CallbackInfo& info) {
    return PacketRing::Make(info.Env(), fd_, info[0].As<Napi::Number>(), info[1].As<Napi::Number>());
  }

  // mapRing(offset in the card's memory, bytes, bytes of a frame): 0 or -errno
  Napi::Value MapRing(const Napi::CallbackInfo& info) {
    const uint32_t bytes = info[1].As<Napi::Number>();
    uint8_t* at = frames_.At(info[0].As<Napi::Number>().Int64Value(), bytes);
    const uint32_t frameBytes = info[2].As<Napi::Number>();
    const int result = at == nullptr ? -EFAULT : ring_.Map(fd_, at, bytes, frameBytes, frames_.rx.Size());
    return Napi::Number::New(info.Env(), result);
  }

  // transfer(): the id for AdoptedSocket
  Napi::Value TransferOut(const Napi::CallbackInfo& info) {
    if (local_ != nullptr) local_->LetOtherThreadMove();
    return Napi::Number::New(info.Env(), Transfer());
  }

  // send(): descriptors consumed, or ~ of that if the kernel refused a GSO burst
  Napi::Value Send(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    return Napi::Number::New(info.Env(), SendFrames());
  }

  bool CanSend() const override { return fd_ >= 0; }

  int SendFd() const override { return fd_; }

  bool UsesGso() const override { return FrameSocket::UsesGso() && (local_ == nullptr || local_->TakesGso()); }

  uint32_t SendSome(uint32_t at, uint32_t end, bool& busy) override {
    if (local_ == nullptr) return SendNextBatch(at, end, busy);
    const bool isLocal = IsLocal(at);
    uint32_t behind = at + 1;
    while (behind != end && behind - at < kMaxRun && IsLocal(behind) == isLocal) behind++;
    return isLocal ? local_->SendBatch(at, behind, busy) : SendNextBatch(at, behind, busy);
  }

  bool IsLocal(uint32_t at) {
    const Descriptor& d = frames_.tx[at];
    const uint8_t* frame = frames_.At(d.addr, d.len);
    return frame != nullptr && d.len >= ETH_HLEN && memcmp(frame, kNoMac, ETH_ALEN) == 0;
  }

  AddResult Add(GsoBurst& burst) override {
    const bool isInvalid = burst.frame == nullptr || burst.frameBytes < ETH_HLEN;
    if (isInvalid || IsOwnMac(burst.frame)) {
      if (!batch_.IsEmpty()) return AddResult::kFlushFirst;
      if (isInvalid) {
        counters_.txInvalid++;
        burst.frames = 1;
      } else {
        LoopBack(burst);
      }
      return AddResult::kDone;
    }
    batch_.Begin();
    Datagram datagram;
    if (burst.frames > 1 && ParseUdp(burst.frame, burst.frameBytes, datagram)) {
      BuildSuperPacket(burst, datagram);
    } else {
      burst.frames = 1;
      batch_.Put(&kNoVnetHeader, sizeof kNoVnetHeader);
      batch_.Put(burst.frame, burst.frameBytes);
    }
    return AddResult::kAdded;
  }

  // Builds one super-packet, as UDP_SEGMENT does. The kernel or the interface segments it into frames.
  void BuildSuperPacket(GsoBurst& burst, const Datagram& datagram) {
    SuperHeader& super = supers_[batch_.Count()];
    batch_.Put(&super, sizeof super.vnet + datagram.headerBytes);
    const uint32_t bytes = PutPayloads(burst, datagram.headerBytes);
    super.vnet = {};
    memcpy(super.headers, burst.frame, datagram.headerBytes);
    if (burst.frames == 1) return;
    SetPayloadBytes(super.headers, datagram, bytes);
    SetPseudoHeaderSum(super.headers, datagram);
    super.vnet.flags = kNeedsChecksum;
    super.vnet.type = kUdpSegments;
    super.vnet.headerBytes = static_cast<uint16_t>(datagram.headerBytes);
    super.vnet.segmentBytes = static_cast<uint16_t>(burst.frameBytes - datagram.headerBytes);
    super.vnet.checksumStart = static_cast<uint16_t>(datagram.headerBytes - kUdpBytes);
    super.vnet.checksumOffset = kUdpChecksum;
  }

  // An interface does not receive the frames that it sends to its own MAC address, but a card must. The loopback
  // interface (MAC address zero) loops them back itself.
  bool IsOwnMac(const uint8_t* frame) const {
    return memcmp(frame, mac_, ETH_ALEN) == 0 && memcmp(mac_, kNoMac, ETH_ALEN) != 0;
  }

  void LoopBack(const GsoBurst& burst) {
    for (uint32_t k = 0; k < burst.frames; k++) {
      const Descriptor& d = frames_.tx[burst.first + k];
      counters_.txFrames++;
      counters_.txBytes += d.len;
      DeliverLocally(d);
    }
  }

  // Frames to a group that this card has joined come back to it, as with IP_MULTICAST_LOOP.
  void OnSent(const GsoBurst& burst) override {
    if (groups_.IsEmpty() || !(burst.frame[0] & 1) || memcmp(mac_, kNoMac, ETH_ALEN) == 0) return;
    if (!groups_.Has(burst.frame)) return;
    for (uint32_t k = 0; k < burst.frames; k++) DeliverLocally(frames_.tx[burst.first + k]);
  }

  void DeliverLocally(const Descriptor& sent) {
    ring_.ReleasePassed(frames_);
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

  // receive(): descriptors produced in the receive ring, one batch at most
  Napi::Value Receive(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    return Napi::Number::New(info.Env(), ReceiveFrames());
  }

  uint32_t ReceiveFrames() override {
    const uint32_t received = ReceiveFromInterface();
    return local_ == nullptr ? received : received + local_->ReceiveReady(received > 0);
  }

  uint32_t ReceiveFromInterface() {
    if (fd_ < 0 || !frames_.IsAttached()) return 0;
    if (ring_.IsMapped()) return ReceiveFromRing();
    if (!splitter_.IsOpen()) return ReceiveFrom(fd_);
    uint32_t received = 0;
    do received += splitter_.SplitInto(frames_, counters_);
    while (splitter_.IsEmpty() && received < kBatch && ReceiveFrom(fd_) > 0);
    return received;
  }

  Frames& Target() override { return splitter_.IsOpen() ? splitter_.LargeRing() : frames_; }

  void PrepareReceive(uint32_t i, uint8_t* slot) override {
    into_[i][0] = {&vnetHeaders_[i], sizeof vnetHeaders_[i]};
    // Leaves room for a tag, which RestoreVlanTag inserts.
    into_[i][1] = {slot, Target().slotBytes - kTagBytes};
    msghdr& header = received_[i].msg_hdr;
    header = {};
    header.msg_iov = into_[i];
    header.msg_iovlen = 2;
    header.msg_control = control_[i];
    header.msg_controllen = sizeof control_[i];
  }

  bool CompleteReceive(uint32_t i, Descriptor& to) override {
    auto frame = static_cast<uint8_t*>(into_[i][1].iov_base);
    to.len = received_[i].msg_len - sizeof vnetHeaders_[i];
    to.len += RestoreVlanTag(frame, to.len, received_[i].msg_hdr);
    return CompleteFrame(frame, vnetHeaders_[i], to);
  }

  bool CompleteFrame(uint8_t* frame, const VnetHeader& vnet, Descriptor& to) {
    to.options = 0;
    Datagram datagram;
    const bool isSuper = vnet.type == kUdpSegments;
    if ((isSuper || Target().foldsIcrc) && ParseUdp(frame, to.len, datagram)) {
      const bool isAll = datagram.headerBytes + datagram.payloadBytes == to.len;
      // A raw socket may have sent any header. Nothing may follow the last segment of a super-packet.
      if (isSuper && isAll) return CompleteSuperPacket(datagram.headerBytes, vnet.segmentBytes, to);
      // In a single frame other bytes, such as padding, may follow the datagram.
      Target().FoldIcrcs(datagram.payload, datagram.payloadBytes, 0, to);
    }
    CountReceived(1, to.len);
    return true;
  }

  uint32_t ReceiveFromRing() {
    ring_.ReleasePassed(frames_);
    const uint32_t first = frames_.rx.Producer();
    for (uint32_t taken = 0; taken < kBatch && frames_.rx.Free() > 0;) {
      const tpacket2_hdr* oldest = ring_.Oldest();
      if (oldest == nullptr) break;
      if (oldest->tp_status & TP_STATUS_COPY) {
        const uint32_t messages = ReceiveBatch(fd_, ring_.Queued(kBatch - taken));
        if (messages == 0) break;
        for (uint32_t i = 0; i < messages; i++) ring_.Release(ring_.Take());
        taken += messages;
      } else {
        TakeFromRing();
        taken++;
      }
    }
    const uint32_t count = frames_.rx.Producer() - first;
    // An error of the socket, such as a link that went down, makes it readable until somebody reads the error.
    if (count == 0 && ++idle_ % kIdleCalls == 0) ReadError();
    return count;
  }

  /// Hands the oldest frame of the ring to the card, or counts why not.
  void TakeFromRing() {
    tpacket2_hdr* from = ring_.Take();
    const uint32_t at = frames_.rx.Producer();
    Descriptor& to = frames_.rx[at];
    const uint64_t slot = to.addr;
    auto frame = reinterpret_cast<uint8_t*>(from) + from->tp_mac;
    VnetHeader vnet;
    memcpy(&vnet, frame - sizeof vnet, sizeof vnet);
    to.len = from->tp_len;
    if (from->tp_status & TP_STATUS_VLAN_VALID) {
      // The tag takes the place of the header in front of the frame.
      frame -= kTagBytes, to.len += kTagBytes;
      memmove(frame, frame + kTagBytes, kMacsBytes);
      PutTag(frame, from->tp_status, from->tp_vlan_tpid, from->tp_vlan_tci);
    }
    to.addr = frames_.OffsetOf(frame);
    // A frame that is too large for the ring is cut off when the queue is full.
    const bool isWhole = from->tp_snaplen == from->tp_len;
    if (isWhole && CompleteFrame(frame, vnet, to)) {
      ring_.Hold(at, from, slot);
      frames_.rx.SetProducer(at + 1);
      return;
    }
    (isWhole ? counters_.rxTruncated : counters_.rxDropped)++;
    to.addr = slot;
    ring_.Release(from);
  }

  void ReadError() {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) counters_.RxFailed(error);
  }

  // Before Linux 6.2 a packet socket cannot receive super-packets of UDP. The kernel stops coalescing when no socket
  // has UDP_GRO.
  void OnReceiveError(int error) override {
    if (error == EINVAL) ports_.SetGro(false);
  }

  // Inserts the 802.1Q tag, which the kernel delivers beside the frame. @returns bytes inserted
  static uint32_t RestoreVlanTag(uint8_t* frame, uint32_t bytes, msghdr& header) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA) continue;
      tpacket_auxdata aux;
      memcpy(&aux, CMSG_DATA(c), sizeof aux);
      if (!(aux.tp_status & TP_STATUS_VLAN_VALID) || bytes < kMacsBytes) return 0;
      memmove(frame + kMacsBytes + kTagBytes, frame + kMacsBytes, bytes - kMacsBytes);
      PutTag(frame, aux.tp_status, aux.tp_vlan_tpid, aux.tp_vlan_tci);
      return kTagBytes;
    }
    return 0;
  }

  static void PutTag(uint8_t* frame, uint32_t status, uint16_t tpid, uint16_t tci) {
    const uint16_t tag[2] = {htons(status & TP_STATUS_VLAN_TPID_VALID ? tpid : ETH_P_8021Q), htons(tci)};
    memcpy(frame + kMacsBytes, tag, sizeof tag);
  }

  Napi::Value Counters(const Napi::CallbackInfo& info) {
    const auto lock = Lock();
    tpacket_stats stats{};
    socklen_t size = sizeof stats;
    // Reading resets the kernel's count.
    if (fd_ >= 0 && getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0)
      counters_.rxDropped += stats.tp_drops;
    auto object = counters_.ToObject(info.Env());
    object.Set("rx_buffer_bytes", fd_ < 0 ? 0 : ReceiveBuffer(fd_));
    return object;
  }

  Napi::Value Fd(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), fd_); }

  void Close(const Napi::CallbackInfo&) {
    Revoke();
    CloseAll();
    frames_.Detach();
  }

  void CloseAll() {
    ring_.Unmap();
    CloseFd(fd_);
    ports_.Close();
    splitter_.Close();
    groups_.Close();
  }

  int fd_ = -1;
  BoundPorts ports_;
  PacketGroups groups_;
  uint8_t mac_[ETH_ALEN] = {};
  GroSplitter splitter_;

  PacketRing ring_;
  uint32_t idle_ = 0;
  Napi::ObjectReference localObject_;
  LocalSockets* local_ = nullptr;

  SuperHeader supers_[kBatch];
  VnetHeader vnetHeaders_[kBatch];
  iovec into_[kBatch][2];
  alignas(cmsghdr) uint8_t control_[kBatch][CMSG_SPACE(sizeof(tpacket_auxdata))];
};

}  // namespace

Napi::Function PacketSocket(Napi::Env env) { return PacketSocketObject::Define(env); }
