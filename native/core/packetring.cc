#include "packetring.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <cerrno>
#include <cstdlib>

#include "frames.h"

namespace {

/// RING_UNIT of src/link/packet.ts.
constexpr uint32_t kBlockBytes = 1 << 16;

/// Before Linux 6.2 the kernel drops super-packets of UDP in front of a ring.
bool KernelKnowsUdpSegments() {
  utsname name;
  if (uname(&name) != 0) return false;
  char* minor = nullptr;
  const long major = strtol(name.release, &minor, 10);
  return major > 6 || (major == 6 && *minor == '.' && strtol(minor + 1, nullptr, 10) >= 2);
}

}  // namespace

int PacketRing::Make(int fd, uint32_t bytes, uint32_t frameBytes) {
  if (!KernelKnowsUdpSegments()) return -EOPNOTSUPP;
  const int version = TPACKET_V2, on = 1;
  tpacket_req wanted{};
  wanted.tp_block_size = kBlockBytes;
  wanted.tp_block_nr = bytes / kBlockBytes;
  wanted.tp_frame_size = frameBytes;
  wanted.tp_frame_nr = kBlockBytes / frameBytes * wanted.tp_block_nr;
  const bool isMade = setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) == 0 &&
                      setsockopt(fd, SOL_PACKET, PACKET_COPY_THRESH, &on, sizeof on) == 0 &&
                      setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof wanted) == 0;
  return isMade ? 0 : -errno;
}

int PacketRing::Map(int fd, uint8_t* at, uint32_t bytes, uint32_t frameBytes, uint32_t descriptors) {
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return -errno;
  blocks_ = at;
  bytes_ = bytes;
  frameBytes_ = frameBytes;
  frames_ = kBlockBytes / frameBytes * (bytes_ / kBlockBytes);
  next_ = taken_ = 0;
  held_.assign(descriptors, {});
  return 0;
}

void PacketRing::Unmap() {
  if (!IsMapped()) return;
  mmap(blocks_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  frames_ = 0;
}

tpacket2_hdr* PacketRing::At(uint32_t index) const {
  const uint32_t perBlock = kBlockBytes / frameBytes_;
  return reinterpret_cast<tpacket2_hdr*>(blocks_ + index / perBlock * kBlockBytes + index % perBlock * frameBytes_);
}

bool PacketRing::IsWritten(uint32_t index) const {
  return taken_ < frames_ && __atomic_load_n(&At(index)->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER;
}

uint32_t PacketRing::Queued(uint32_t limit) const {
  uint32_t count = 0;
  for (uint32_t at = next_; count < limit && count < frames_ - taken_; count++, at = After(at))
    if (!IsWritten(at) || !(At(at)->tp_status & TP_STATUS_COPY)) break;
  return count;
}

tpacket2_hdr* PacketRing::Take() {
  tpacket2_hdr* frame = At(next_);
  next_ = After(next_);
  taken_++;
  return frame;
}

void PacketRing::Release(tpacket2_hdr* frame) {
  taken_--;
  __atomic_store_n(&frame->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
}

void PacketRing::Hold(uint32_t at, tpacket2_hdr* frame, uint64_t slot) {
  held_[at & (held_.size() - 1)] = {frame, slot};
}

void PacketRing::ReleasePassed(Frames& card) {
  if (!IsMapped()) return;
  for (const uint32_t end = card.rx.Consumer(); released_ != end; released_++) {
    Held& held = held_[released_ & (held_.size() - 1)];
    if (held.frame == nullptr) continue;
    card.rx[released_].addr = held.slot;
    Release(held.frame);
    held = {};
  }
}
