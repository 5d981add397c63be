// UDP sockets, one for each local address, which carry the payload of the card's frames. They need no privilege.
//
// The managing thread calls what is public, except for the first three methods of LocalSockets.
#pragma once
#include <netinet/in.h>
#include <poll.h>
#include <chrono>
#include <vector>

#include "framesocket.h"
#include "localsockets.h"

class UdpSockets final : public FrameSocket, public LocalSockets {
 public:
  ~UdpSockets() override;

  /// Opens a socket that is bound to an address. @param ifindex of the interface by which datagrams to groups leave
  /// @returns 0 or -errno
  int Add(const sockaddr_in6& address, int bufferBytes, int ifindex);
  /// Uses a duplicate of a socket that is bound to the address. @returns 0 or -errno
  int Adopt(int fd, const sockaddr_in6& address, int bufferBytes, int ifindex);
  /// Opens a socket that only sends. @param address with port 0: the kernel chooses one
  /// @returns its UDP port, or -errno
  int AddSender(const sockaddr_in6& address, int bufferBytes, bool hasChecksum);
  /// Joins a group by a socket of its own: one bound to a unicast address receives no multicast.
  /// @returns the file descriptor, or -errno
  int JoinGroup(const sockaddr_in6& group, int bufferBytes, int ifindex);
  /// Closes the socket of a group, or of an address. Does nothing if there is none. @param ip 4 or 16 bytes
  void LeaveGroup(const uint8_t* ip, size_t bytes) { Drop(ip, bytes, true); }
  void Remove(const uint8_t* ip, size_t bytes) { Drop(ip, bytes, false); }
  /// Whether the kernel has UDP_SEGMENT and UDP_GRO.
  bool SupportsGso() const;
  /// Returns the file descriptors of the sockets that receive.
  std::vector<int> Fds() const;
  /// Returns the file descriptor of the socket with an IP address of 4 or 16 bytes, or -1.
  int FdOf(const uint8_t* ip, size_t bytes) const;

  void Attach(uint8_t* memory, uint64_t bytes, const FrameLayout& layout) override;
  FrameCounters Counters() override;
  void Close() override;

  uint32_t SendBatch(uint32_t at, uint32_t end, bool& busy) override;
  uint32_t ReceiveReady(bool hasOthers) override;
  bool TakesGso() const override { return UsesGso(); }
  void LetOtherThreadMove() override { Transfer(); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Socket {
    explicit Socket(const sockaddr_in6& bound);

    sockaddr_in6 address;  // or a sockaddr_in
    bool isIpv6;
    bool isGroup = false;    // it only receives
    uint16_t port = 0;       // of a socket that only sends
    int fd = -1;
    uint32_t overflows = 0;  // the kernel's SO_RXQ_OVFL count as last seen
  };

  struct Control {
    uint8_t trafficClass = 0;
    uint8_t hopLimit = 0;
    uint32_t segmentBytes = 0;
  };

  int Keep(Socket& socket, int result);
  void Drop(const uint8_t* ip, size_t bytes, bool isGroup);
  void SetGro(int fd) const;
  void CloseAll();

  bool CanSend() const override { return !sockets_.empty(); }
  int SendFd() const override { return sending_->fd; }
  AddResult AddBurst(GsoBurst& burst) override;
  const Socket* Owner(const Datagram& datagram) const;

  uint32_t ReceiveFrames() override;
  uint32_t ReceiveLocalFrames(bool hasOthers) override;
  uint32_t ReceiveFromSocket(Socket& socket);
  bool IsLocalDue(bool hasOthers);
  std::chrono::microseconds LocalInterval(Clock::time_point now) const;
  uint32_t HeaderBytes() const { return receiving_->isIpv6 ? kHeaderBytes6 : kHeaderBytes4; }
  void PrepareReceive(uint32_t i, uint8_t* slot) override;
  bool CompleteReceive(uint32_t i, Descriptor& to) override;
  Control ReadControl(msghdr& header);

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
  Clock::time_point localCalledAt_, localLookedAt_, localReceivedAt_;
  iovec into_[kBatch];
  sockaddr_in6 names_[kBatch];
  // Room for traffic class, hop limit, segment size and the overflow count.
  alignas(cmsghdr) uint8_t control_[kBatch][4 * CMSG_SPACE(sizeof(int))];
};
