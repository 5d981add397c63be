// The packet socket (packet(7)) of one interface: whole Ethernet frames, directly between the kernel and the card's
// slots. Each message has a virtio_net_hdr in front (PACKET_VNET_HDR), which says whether its frame is a super-packet.
//
// The managing thread calls what is public.
#pragma once
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include "framesocket.h"
#include "grosplitter.h"
#include "localsockets.h"
#include "packetgroups.h"
#include "packetring.h"
#include "ports.h"

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

class PacketSocket final : public FrameSocket {
 public:
  ~PacketSocket() override;

  /// @param mac of the interface @returns 0 or -errno
  int Open(int ifindex, const uint8_t (&mac)[ETH_ALEN], int bufferBytes);
  /// Receives only the packets whose number at the steering place has `value` under the mask. @returns 0 or -errno
  int Steer(uint32_t mask, uint32_t value);
  /// Sends frames to addresses of this host by other sockets, which must stay until Close. @param slot of the program;
  /// 0 = nothing is received from the interface @returns 0 or -errno
  int Share(LocalSockets& local, uint32_t slot);
  /// As those of BoundPorts.
  int BindPort(const sockaddr_in6& address, bool isShared);
  void UnbindPort(const uint8_t* ip, size_t bytes);
  /// @returns 0 or -errno
  int JoinGroup(const PacketGroup& group, int ifindex);
  void LeaveGroup(const PacketGroup& group, int ifindex);
  /// Maps the ring that PacketRing::Make has made of the socket.
  /// @param at offset in the card's memory, on a boundary of pages @returns 0 or -errno
  int MapRing(uint64_t at, uint32_t bytes, uint32_t frameBytes);
  int Fd() const { return fd_; }

  void Attach(uint8_t* memory, uint64_t bytes, const FrameLayout& layout) override;
  uint32_t Transfer() override;
  FrameCounters Counters() override;
  void Close() override;

 private:
  /// The headers in front of the payloads of a burst.
  struct SuperHeader {
    VnetHeader vnet;
    uint8_t headers[kMaxHeaderBytes];
  };

  int OpenSocket(int ifindex, int bufferBytes);
  void CloseAll();

  bool CanSend() const override { return fd_ >= 0; }
  int SendFd() const override { return fd_; }
  bool UsesGso() const override;
  uint32_t SendSome(uint32_t at, uint32_t end, bool& busy) override;
  bool IsLocal(uint32_t at);
  AddResult AddBurst(GsoBurst& burst) override;
  void BuildSuperPacket(GsoBurst& burst, const Datagram& datagram);
  bool IsOwnMac(const uint8_t* frame) const;
  void LoopBack(const GsoBurst& burst);
  void OnSent(const GsoBurst& burst) override;
  void DeliverLocally(const Descriptor& sent);

  uint32_t ReceiveFrames() override;
  uint32_t ReceiveFromInterface();
  Frames& Target() override { return splitter_.IsOpen() ? splitter_.LargeRing() : frames_; }
  void PrepareReceive(uint32_t i, uint8_t* slot) override;
  bool CompleteReceive(uint32_t i, Descriptor& to) override;
  bool CompleteFrame(uint8_t* frame, const VnetHeader& vnet, Descriptor& to);
  uint32_t ReceiveFromRing();
  void TakeFromRing();
  void ReadError();
  void OnReceiveError(int error) override;

  int fd_ = -1;
  BoundPorts ports_;
  PacketGroups groups_;
  uint8_t mac_[ETH_ALEN] = {};
  GroSplitter splitter_;

  PacketRing ring_;
  uint32_t idle_ = 0;
  LocalSockets* local_ = nullptr;

  SuperHeader supers_[kBatch];
  VnetHeader vnetHeaders_[kBatch];
  iovec into_[kBatch][2];
  alignas(cmsghdr) uint8_t control_[kBatch][CMSG_SPACE(sizeof(tpacket_auxdata))];
};
