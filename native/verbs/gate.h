// The gate between the card and the link while rules of faults are in force for the program. The rules are the broker's
// (src/broker/control/framefilter.ts, which has the form of the stream): each frame goes there and comes back, or does
// not, and others may come. The gate takes the frames of the receive ring in the card's place, and those that the card
// puts at the end of the transmit ring before the link sees them.
//
// The caller holds the adapter's lock. Nothing blocks.
#pragma once
#include <cstdint>
#include <vector>

#include "core/frames.h"

class Gate {
 public:
  /// Says on a stream to the broker that all frames come this way from now on.
  static void Begin(int fd);
  /// @param fd the stream, after Begin, which the gate owns
  explicit Gate(int fd) : fd_(fd) {}
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Uses these rings.
  void Attach(uint8_t* memory, const FrameLayout& layout);
  int Fd() const { return fd_; }

  /// Takes the frames of the receive ring. @returns their number
  uint32_t TakeReceived();
  /// Whether the card may put a frame into the transmit ring, for TakeSent.
  bool HasRoom() const;
  /// Takes the frame that the card has put at the end of the transmit ring.
  void TakeSent();

  /// A frame that has come back.
  struct Frame {
    bool isReceived;
    uint32_t options, bytes;
    const uint8_t* data;
  };
  /// Returns the oldest frame that has come back, until Pop. @returns false if there is none
  bool Front(Frame& frame);
  void Pop();

  /// Sends and receives what it can.
  void Exchange();
  /// Whether the broker has ended it: when Front has no frame, none will come.
  bool HasEnded() const { return hasEnded_; }
  /// Whether frames wait for the stream to take them.
  bool IsBusy() const { return unsent_.size() != sentTo_; }
  /// Sends a mark, which comes back behind the frames that the gate has taken.
  void Mark();
  bool IsMarked() const { return marks_ > 0; }

 private:
  void Put(uint32_t kind, uint32_t options, const uint8_t* data, uint32_t bytes);
  void Send();
  void Receive();

  int fd_;
  uint8_t* memory_ = nullptr;
  Ring tx_, rx_;
  std::vector<uint8_t> unsent_, unread_;
  size_t sentTo_ = 0, readTo_ = 0;
  /// Marks that have not come back.
  uint32_t marks_ = 0;
  /// The broker ends the gate: frames stay in the rings until it has.
  bool isEnding_ = false, hasEnded_ = false;
};
