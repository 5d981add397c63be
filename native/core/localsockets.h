// The UDP sockets that carry a packet socket's frames to and from addresses of this host, which never reach the
// interface. These frames have the destination MAC address zero. Both sockets use the rings of one card, and the thread
// that moves the packet socket's frames calls the methods, except for LetOtherThreadMove.
#pragma once
#include <cstdint>

class LocalSockets {
 public:
  /// As FrameSocket::SendNextBatch.
  virtual uint32_t SendBatch(uint32_t at, uint32_t end, bool& busy) = 0;
  /// As SharedSocket::ReceiveLocalFrames.
  virtual uint32_t ReceiveReady(bool hasOthers) = 0;
  /// Whether the kernel has refused no burst.
  virtual bool TakesGso() const = 0;
  /// From now on another thread may send and receive. The managing thread calls it.
  virtual void LetOtherThreadMove() = 0;

 protected:
  ~LocalSockets() = default;
};
