// What the packet socket and the UDP sockets share: frames and runs of frames go from the transmit ring to a socket, and
// from a socket to the receive ring, a batch per system call. How a frame looks to its socket is told by who derives.
#pragma once
#include "frames.h"
#include "headers.h"
#include "loan.h"
#include "outbox.h"

class Carrier : public Lender {
 public:
  virtual ~Carrier() = default;

 protected:
  /// What has become of a run that was offered to the outbox.
  enum class Fate {
    kAdded,
    /// It needs no message: it is counted, or has arrived already.
    kDone,
    /// Only when what is in the outbox has left: what stays in the ring is seen again.
    kWaits,
  };

  /// @returns descriptors taken off the transmit ring; `~` of that when the kernel refuses runs from now on
  int32_t SendAll();
  /// Describes a run as one message of the outbox, or leaves it; may take fewer of its frames.
  virtual Fate Add(Run& run) = 0;
  /// Where the outbox goes to.
  virtual int SendFd() const = 0;
  /// A message has left.
  virtual void OnSent(const Run&) {}
  /// Describes the UDP payloads of a run, behind `headerBytes` of headers each; leaves out frames that do not fit.
  /// @returns bytes of all of them
  uint32_t PutPayloads(Run& run, uint32_t headerBytes);
  /// The frame belongs to the run of the one before it, whether or not they leave together.
  bool ContinuesRun(const Run& run) { return frames_.tx[run.first].options & kTxContinuesRun; }

  /// What has come to a socket, one batch. @returns descriptors put into the ring that `Into` names
  uint32_t ReceiveFrom(int fd);
  /// Prepares message `i` of received_ for a slot.
  virtual void Offer(uint32_t i, uint8_t* slot) = 0;
  /// Completes the frame of message `i`, which is whole in its slot: sets length and options, and counts it.
  /// @returns false when it cannot be delivered
  virtual bool Accept(uint32_t i, Descriptor& to) = 0;
  /// Completes the descriptor of a whole frame whose UDP payload, behind `headerBytes`, is of packets of `segmentBytes`, 0 = there
  /// is one, and counts them. @returns as Accept
  bool AcceptSuper(uint32_t headerBytes, uint32_t segmentBytes, Descriptor& to);
  /// The kernel has given up a message of a socket, with this error.
  virtual void OnReceiveError(int) {}
  /// Where messages are received into: the card's ring, unless there is one in between.
  virtual Frames& Into() { return frames_; }
  /// Does the link's part in the ICRC of each packet of a UDP payload, where the card wants it.
  void FoldIcrcs(uint8_t* payload, uint32_t bytes, uint32_t segmentBytes, Descriptor& to);
  void CountReceived(uint32_t frames, uint64_t bytes);

  Frames frames_;
  FrameCounters counters_;
  Outbox out_;
  mmsghdr received_[kBatch];

 private:
  void CompleteIcrc(Descriptor& d);
  uint32_t SendBatch(uint32_t at, uint32_t end, bool& busy);
  Run RunAt(uint32_t at, uint32_t end);
  uint32_t ReceiveBatch(int fd, uint32_t limit);

  bool takesRuns_ = true;
};
