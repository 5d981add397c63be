// The receive ring of a packet socket (PACKET_RX_RING, TPACKET_V2), mapped into the card's memory: the kernel writes
// each frame where the card reads it, and no system call receives. A frame that is larger than the ring's frames, such
// as a super-packet, goes to the socket's queue (PACKET_COPY_THRESH), and its place in the ring says so.
#pragma once
#include <linux/if_packet.h>
#include <cstdint>
#include <vector>

class Frames;

class PacketRing {
 public:
  /// Makes the ring of a socket, which has PACKET_VNET_HDR and receives nothing meanwhile. It takes some milliseconds:
  /// the kernel waits until no processor uses the socket any more. Any thread may call it.
  /// @returns 0 or -errno; -EOPNOTSUPP if the kernel does not write super-packets into rings
  static int Make(int fd, uint32_t bytes, uint32_t frameBytes);

  /// Maps a ring, with the numbers that it was made with. `at` is on a boundary of pages.
  /// @param descriptors of the card's receive ring, a power of two
  /// @returns 0 or -errno
  int Map(int fd, uint8_t* at, uint32_t bytes, uint32_t frameBytes, uint32_t descriptors);
  /// Unmaps the ring; the card's memory stays mapped as a whole. Call it before the socket is closed.
  void Unmap();
  bool IsMapped() const { return frames_ > 0; }

  /// Returns the oldest frame that the kernel has written and Take has not taken, or null.
  const tpacket2_hdr* Oldest() const { return IsWritten(next_) ? At(next_) : nullptr; }
  /// Returns how many frames from the oldest one on are in the socket's queue, at most `limit`.
  uint32_t Queued(uint32_t limit) const;
  /// Takes the oldest frame, which must exist. The kernel does not touch it before Release.
  tpacket2_hdr* Take();
  void Release(tpacket2_hdr* frame);

  /// The descriptor with number `at` of the card's receive ring has a frame that was taken, in place of its slot.
  void Hold(uint32_t at, tpacket2_hdr* frame, uint64_t slot);
  /// Releases the frames that the card has passed, and gives their descriptors their slots back.
  void ReleasePassed(Frames& card);

 private:
  tpacket2_hdr* At(uint32_t index) const;
  bool IsWritten(uint32_t index) const;
  uint32_t After(uint32_t index) const { return index + 1 == frames_ ? 0 : index + 1; }

  uint8_t* blocks_ = nullptr;
  uint32_t bytes_ = 0, frameBytes_ = 0, frames_ = 0, next_ = 0;
  /// Frames that are taken and not released. If that is all of them, the next one is taken, too.
  uint32_t taken_ = 0;

  struct Held {
    tpacket2_hdr* frame = nullptr;
    uint64_t slot = 0;
  };
  /// By the descriptors' numbers, modulo their count.
  std::vector<Held> held_;
  /// The receive ring's consumer when ReleasePassed was called last.
  uint32_t released_ = 0;
};
