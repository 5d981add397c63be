// Base of the packet socket and the UDP sockets: moves frames and GSO bursts from the transmit ring to a socket, and
// frames from a socket to the receive ring, one batch per system call. Derived classes say how a frame looks to their
// socket.
//
// The managing thread calls what is public. One thread at a time moves the frames: the managing one or, after Transfer,
// the one that adopted the socket (sharedsocket.h). It runs what is protected, but for the destructors.
#pragma once
#include <chrono>
#include <optional>

#include "frames.h"
#include "headers.h"
#include "sharedsocket.h"
#include "sendbatch.h"

class FrameSocket : public SharedSocket {
 public:
  virtual ~FrameSocket() = default;

  /// Sets the memory and the rings that the frames are moved from and to. Call it once, before Transfer.
  /// @param memory stays where it is until Close
  virtual void Attach(uint8_t* memory, uint64_t bytes, const FrameLayout& layout) = 0;
  /// Closes what is open, and detaches the rings. A thread that has adopted the socket moves nothing from then on. A
  /// second call does nothing.
  virtual void Close() = 0;
  virtual FrameCounters Counters() = 0;

 protected:
  /// The result of `AddBurst`.
  enum class AddResult {
    /// The burst is a message of the batch.
    kAdded,
    /// The burst needs no message: it was invalid and is counted, or it was looped back.
    kDone,
    /// The batch must be sent before this burst, which stays in the ring until then.
    kFlushFirst,
  };

  /// Sends the frames of the transmit ring. @returns descriptors consumed; `~` of that if the kernel refused a burst
  int32_t SendFrames() override;
  /// Whether there is a socket that sends.
  virtual bool CanSend() const = 0;
  /// Sends one batch of the descriptors from `at` to `end`, which is not `at`. @returns the cursor of the first one
  /// that stays in the ring
  uint32_t SendNextBatch(uint32_t at, uint32_t end, bool& busy);
  /// As SendNextBatch, by the sockets that these frames need.
  virtual uint32_t SendSome(uint32_t at, uint32_t end, bool& busy) { return SendNextBatch(at, end, busy); }
  /// Whether the kernel has refused no burst.
  virtual bool UsesGso() const { return usesGso_; }
  /// Adds a burst to the batch as one message. May reduce `burst.frames`; the other frames then follow by themselves.
  virtual AddResult AddBurst(GsoBurst& burst) = 0;
  /// The socket that sends the batch.
  virtual int SendFd() const = 0;
  /// Called for each message that the kernel has taken.
  virtual void OnSent(const GsoBurst&) {}
  /// Adds the UDP payloads of a burst, which follow `headerBytes` of headers each, to the message. Reduces
  /// `burst.frames` to the frames that fit. @returns bytes of their payloads
  uint32_t PutPayloads(GsoBurst& burst, uint32_t headerBytes);
  /// Returns whether the frame continues the burst of the frame before it, even if the two are sent one by one.
  bool ContinuesBurst(const GsoBurst& burst) { return frames_.tx[burst.first].options & kTxContinuesBurst; }

  /// Receives one batch from a socket. @returns descriptors produced in the receive ring of `Target`
  uint32_t ReceiveFrom(int fd);
  /// Receives up to `limit` messages by one call. @returns messages taken from the socket, of which the receive ring of
  /// `Target` has those that can be delivered
  uint32_t ReceiveBatch(int fd, uint32_t limit);
  /// Prepares message `i` of `received_` to receive into a slot.
  virtual void PrepareReceive(uint32_t i, uint8_t* slot) = 0;
  /// Completes message `i`, which has arrived whole: sets the descriptor's length and options, and counts its frames.
  /// @returns false if the message cannot be delivered
  virtual bool CompleteReceive(uint32_t i, Descriptor& to) = 0;
  /// Completes the descriptor of a whole frame whose UDP payload follows `headerBytes` of headers and consists of
  /// packets of `segmentBytes` (0 = one packet), and counts them. @returns as CompleteReceive
  bool CompleteSuperPacket(uint32_t headerBytes, uint32_t segmentBytes, Descriptor& to);
  /// Called with the errno of a failed receive call.
  virtual void OnReceiveError(int) {}
  /// The rings that receive messages: the card's, or those of a GroSplitter in front of them.
  virtual Frames& Target() { return frames_; }
  void CountReceived(uint32_t frames, uint64_t bytes);

  Frames frames_;
  FrameCounters counters_;
  SendBatch batch_;
  mmsghdr received_[kBatch];

 private:
  GsoBurst BurstAt(uint32_t at, uint32_t end);
  bool IsWorthWaiting(const GsoBurst& burst);

  bool usesGso_ = true;
  /// Since when the first burst of the ring waits for room in the kernel. Absent: it does not.
  std::optional<std::chrono::steady_clock::time_point> waitsSince_;
  /// Bytes of the shortest frame that has waited in vain.
  uint32_t hopelessBytes_ = UINT32_MAX;
  /// Descriptors that were filled since the receive ring was empty.
  uint32_t used_ = 0;
};
