#include "packetsocket.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>

#include "fd.h"
#include "roce_filter.h"

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
constexpr uint8_t kNeedsChecksum = 1;  // VIRTIO_NET_HDR_F_NEEDS_CSUM
constexpr uint8_t kUdpSegments = 5;    // VIRTIO_NET_HDR_GSO_UDP_L4, since Linux 6.2
constexpr VnetHeader kNoVnetHeader = {};

void PutTag(uint8_t* frame, uint32_t status, uint16_t tpid, uint16_t tci) {
  const uint16_t tag[2] = {htons(status & TP_STATUS_VLAN_TPID_VALID ? tpid : ETH_P_8021Q), htons(tci)};
  memcpy(frame + kMacsBytes, tag, sizeof tag);
}

/// Inserts the 802.1Q tag, which the kernel delivers beside the frame. @returns bytes inserted
uint32_t RestoreVlanTag(uint8_t* frame, uint32_t bytes, msghdr& header) {
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

}  // namespace

PacketSocket::~PacketSocket() {
  Revoke();
  CloseAll();
}

int PacketSocket::Open(int ifindex, const uint8_t (&mac)[ETH_ALEN], int bufferBytes) {
  memcpy(mac_, mac, sizeof mac_);
  const int result = OpenSocket(ifindex, bufferBytes);
  if (result < 0) CloseAll();
  return result;
}

int PacketSocket::OpenSocket(int ifindex, int bufferBytes) {
  // Protocol 0: nothing arrives before the filter is attached and the socket is bound.
  fd_ = KernelSocket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK);
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

int PacketSocket::Steer(uint32_t mask, uint32_t value) {
  const auto program = SteeringFilter(mask, value);
  return AttachFilter(fd_, program.data(), program.size()) == 0 ? 0 : -errno;
}

int PacketSocket::Share(LocalSockets& local, uint32_t slot) {
  local_ = &local;
  const auto program = SharedFilter(slot);
  const int result = slot == 0 ? AttachFilter(fd_, kNothing) : AttachFilter(fd_, program.data(), program.size());
  if (result != 0) return -errno;
  // what has arrived before may be for others
  DropReceived(fd_);
  return 0;
}

int PacketSocket::BindPort(const sockaddr_in6& address, bool isShared) {
  const auto lock = Lock();
  return ports_.Bind(address, isShared);
}

void PacketSocket::UnbindPort(const uint8_t* ip, size_t bytes) {
  const auto lock = Lock();
  ports_.Unbind(ip, bytes);
}

int PacketSocket::JoinGroup(const PacketGroup& group, int ifindex) {
  const auto lock = Lock();
  return groups_.Join(fd_, group, ifindex);
}

void PacketSocket::LeaveGroup(const PacketGroup& group, int ifindex) {
  const auto lock = Lock();
  groups_.Leave(fd_, group, ifindex);
}

void PacketSocket::Attach(uint8_t* memory, uint64_t bytes, const FrameLayout& layout) {
  frames_.Attach(memory, bytes, layout);
  const bool gro = frames_.slotBytes >= kCoalescedBytes;
  ports_.SetGro(gro);
  if (!gro) splitter_.Open();
}

int PacketSocket::MapRing(uint64_t at, uint32_t bytes, uint32_t frameBytes) {
  uint8_t* place = frames_.At(at, bytes);
  return place == nullptr ? -EFAULT : ring_.Map(fd_, place, bytes, frameBytes, frames_.rx.Size());
}

uint32_t PacketSocket::Transfer() {
  if (local_ != nullptr) local_->LetOtherThreadMove();
  return FrameSocket::Transfer();
}

FrameCounters PacketSocket::Counters() {
  const auto lock = Lock();
  tpacket_stats stats{};
  socklen_t size = sizeof stats;
  // Reading resets the kernel's count.
  if (fd_ >= 0 && getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0)
    counters_.rxDropped += stats.tp_drops;
  FrameCounters counters = counters_;
  if (fd_ >= 0) counters.rxBufferBytes = static_cast<uint64_t>(ReceiveBuffer(fd_));
  return counters;
}

void PacketSocket::Close() {
  Revoke();
  CloseAll();
  frames_.Detach();
}

void PacketSocket::CloseAll() {
  ring_.Unmap();
  CloseFd(fd_);
  ports_.Close();
  splitter_.Close();
  groups_.Close();
}

bool PacketSocket::UsesGso() const { return FrameSocket::UsesGso() && (local_ == nullptr || local_->TakesGso()); }

uint32_t PacketSocket::SendSome(uint32_t at, uint32_t end, bool& busy) {
  if (local_ == nullptr) return SendNextBatch(at, end, busy);
  const bool isLocal = IsLocal(at);
  uint32_t behind = at + 1;
  while (behind != end && behind - at < kMaxRun && IsLocal(behind) == isLocal) behind++;
  return isLocal ? local_->SendBatch(at, behind, busy) : SendNextBatch(at, behind, busy);
}

bool PacketSocket::IsLocal(uint32_t at) {
  const Descriptor& d = frames_.tx[at];
  const uint8_t* frame = frames_.At(d.addr, d.len);
  return frame != nullptr && d.len >= ETH_HLEN && memcmp(frame, kNoMac, ETH_ALEN) == 0;
}

FrameSocket::AddResult PacketSocket::AddBurst(GsoBurst& burst) {
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

/// Builds one super-packet, as UDP_SEGMENT does. The kernel or the interface segments it into frames.
void PacketSocket::BuildSuperPacket(GsoBurst& burst, const Datagram& datagram) {
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

/// An interface does not receive the frames that it sends to its own MAC address, but a card must. The loopback
/// interface (MAC address zero) loops them back itself.
bool PacketSocket::IsOwnMac(const uint8_t* frame) const {
  return memcmp(frame, mac_, ETH_ALEN) == 0 && memcmp(mac_, kNoMac, ETH_ALEN) != 0;
}

void PacketSocket::LoopBack(const GsoBurst& burst) {
  for (uint32_t k = 0; k < burst.frames; k++) {
    const Descriptor& d = frames_.tx[burst.first + k];
    counters_.txFrames++;
    counters_.txBytes += d.len;
    DeliverLocally(d);
  }
}

/// Frames to a group that this card has joined come back to it, as with IP_MULTICAST_LOOP.
void PacketSocket::OnSent(const GsoBurst& burst) {
  if (groups_.IsEmpty() || !(burst.frame[0] & 1) || memcmp(mac_, kNoMac, ETH_ALEN) == 0) return;
  if (!groups_.Has(burst.frame)) return;
  for (uint32_t k = 0; k < burst.frames; k++) DeliverLocally(frames_.tx[burst.first + k]);
}

void PacketSocket::DeliverLocally(const Descriptor& sent) {
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

/// One batch at most.
uint32_t PacketSocket::ReceiveFrames() {
  const uint32_t received = ReceiveFromInterface();
  return local_ == nullptr ? received : received + local_->ReceiveReady(received > 0);
}

uint32_t PacketSocket::ReceiveFromInterface() {
  if (fd_ < 0 || !frames_.IsAttached()) return 0;
  if (ring_.IsMapped()) return ReceiveFromRing();
  if (!splitter_.IsOpen()) return ReceiveFrom(fd_);
  uint32_t received = 0;
  do received += splitter_.SplitInto(frames_, counters_);
  while (splitter_.IsEmpty() && received < kBatch && ReceiveFrom(fd_) > 0);
  return received;
}

void PacketSocket::PrepareReceive(uint32_t i, uint8_t* slot) {
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

bool PacketSocket::CompleteReceive(uint32_t i, Descriptor& to) {
  auto frame = static_cast<uint8_t*>(into_[i][1].iov_base);
  to.len = received_[i].msg_len - sizeof vnetHeaders_[i];
  to.len += RestoreVlanTag(frame, to.len, received_[i].msg_hdr);
  return CompleteFrame(frame, vnetHeaders_[i], to);
}

bool PacketSocket::CompleteFrame(uint8_t* frame, const VnetHeader& vnet, Descriptor& to) {
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

uint32_t PacketSocket::ReceiveFromRing() {
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
void PacketSocket::TakeFromRing() {
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

void PacketSocket::ReadError() {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) counters_.RxFailed(error);
}

/// Before Linux 6.2 a packet socket cannot receive super-packets of UDP. The kernel stops coalescing when no socket has
/// UDP_GRO.
void PacketSocket::OnReceiveError(int error) {
  if (error == EINVAL) ports_.SetGro(false);
}
