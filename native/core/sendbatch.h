// The messages of one sendmmsg(2). Each message is a frame of the transmit ring, or a GSO burst.
#pragma once
#include <sys/socket.h>
#include <cstdint>

/// Most messages of one system call.
constexpr uint32_t kBatch = 64;
/// Most frames of one burst: what any kernel with UDP GSO accepts (UDP_MAX_SEGMENTS).
constexpr uint32_t kMaxBurstFrames = 64;

/// Consecutive descriptors of the transmit ring that one message sends. A single frame is a burst of one.
struct GsoBurst {
  uint32_t first;  // cursor of the first descriptor
  uint32_t frames;
  uint8_t* frame;       // the first frame
  uint32_t frameBytes;  // of the first frame
};

class SendBatch {
 public:
  void Clear() { count_ = pieces_ = frames_ = 0; }
  bool IsEmpty() const { return count_ == 0; }
  /// Returns whether a burst of kMaxBurstFrames might not fit.
  bool IsFull() const { return count_ == kBatch || frames_ + kMaxBurstFrames > kFrames; }
  uint32_t Count() const { return count_; }
  const GsoBurst& operator[](uint32_t message) const { return bursts_[message]; }

  /// Begins a message. Put adds bytes to it; End adds the message to the batch.
  msghdr& Begin() {
    msghdr& header = messages_[count_].msg_hdr;
    header = {};
    header.msg_iov = iov_ + pieces_;
    return header;
  }
  void Put(const void* bytes, uint32_t length) {
    iov_[pieces_++] = {const_cast<void*>(bytes), length};
    messages_[count_].msg_hdr.msg_iovlen++;
  }
  void End(const GsoBurst& burst) {
    bursts_[count_++] = burst;
    frames_ += burst.frames;
  }

  /// @returns messages sent, or -1 and errno
  int Send(int fd) { return sendmmsg(fd, messages_, count_, 0); }

 private:
  static constexpr uint32_t kFrames = 256;
  mmsghdr messages_[kBatch];
  GsoBurst bursts_[kBatch];
  // One for each frame, and one for the headers that a link puts before each message.
  iovec iov_[kFrames + kBatch];
  uint32_t count_ = 0, pieces_ = 0, frames_ = 0;
};
