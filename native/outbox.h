// The messages of one sendmmsg: each carries a frame of the transmit ring, or a run of them.
#pragma once
#include <sys/socket.h>
#include <cstdint>

/// Messages of one system call.
constexpr uint32_t kBatch = 64;
/// Frames of one run: as many as any kernel segments into (UDP_MAX_SEGMENTS).
constexpr uint32_t kRunFrames = 64;

/// Consecutive descriptors of the transmit ring that leave together.
struct Run {
  uint32_t first;  // its cursor
  uint32_t frames;
  uint8_t* frame;  // the first one
  uint32_t frameBytes;
};

class Outbox {
 public:
  void Clear() { count_ = pieces_ = frames_ = 0; }
  bool IsEmpty() const { return count_ == 0; }
  /// There may be no room for another run.
  bool IsFull() const { return count_ == kBatch || frames_ + kRunFrames > kFrames; }
  uint32_t Count() const { return count_; }
  const Run& operator[](uint32_t message) const { return runs_[message]; }

  /// Begins a message, that Put continues and End ends.
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
  void End(const Run& run) {
    runs_[count_++] = run;
    frames_ += run.frames;
  }

  /// @returns messages sent, or -1 and errno
  int Send(int fd) { return sendmmsg(fd, messages_, count_, 0); }

 private:
  static constexpr uint32_t kFrames = 256;
  mmsghdr messages_[kBatch];
  Run runs_[kBatch];
  // One for each frame, and one for what a link puts before each message.
  iovec iov_[kFrames + kBatch];
  uint32_t count_ = 0, pieces_ = 0, frames_ = 0;
};
