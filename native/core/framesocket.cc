#include "framesocket.h"

#include <algorithm>
#include <cerrno>

namespace {

/// Messages of the first recvmmsg. With nothing to receive, preparing 64 slots costs more than the system call.
constexpr uint32_t kFirstMessages = 8;
/// Most UDP payload bytes of one burst. With its headers a burst stays below 64 KiB, from which size on the kernel
/// segments it at once. The link announces the same limit to the card (src/link/sockets.ts).
constexpr uint32_t kMaxBurstBytes = 65535 - 14 - 4 - 40 - 8;

/// Time for which a frame waits while the kernel has no room for it. A queue at 120 kbit/s sends 1500 bytes in it. The
/// kernel says the same of a frame that the device drops each time, as veth does with one that is longer than the MTU
/// of its far end.
constexpr std::chrono::milliseconds kMaxWait{100};

/// Returns whether the errno means that the kernel, or the way to the destination, has no GSO.
bool IsGsoRefusal(int error) { return error == EINVAL || error == EIO || error == EOPNOTSUPP || error == ENOPROTOOPT; }

/// Returns whether the errno means that the same frames may pass later.
bool IsBusy(int error) { return error == EAGAIN || error == ENOBUFS || error == EINTR; }

}  // namespace

int32_t FrameSocket::SendFrames() {
  if (!frames_.IsAttached()) return 0;
  frames_.CompleteIcrcs();
  if (!CanSend()) return 0;
  Ring& ring = frames_.tx;
  const uint32_t first = ring.Consumer(), end = ring.Producer();
  const bool usedGso = UsesGso();
  uint32_t at = first;
  for (bool busy = false; at != end && !busy;) at = SendSome(at, end, busy);
  ring.SetConsumer(at);
  const auto taken = static_cast<int32_t>(at - first);
  return usedGso == UsesGso() ? taken : ~taken;
}

uint32_t FrameSocket::SendNextBatch(uint32_t at, uint32_t end, bool& busy) {
  batch_.Clear();
  while (at != end && !batch_.IsFull()) {
    if (frames_.tx[at].len == 0) {
      at++;
      continue;
    }
    GsoBurst burst = BurstAt(at, end);
    const AddResult added = AddBurst(burst);
    if (added == AddResult::kFlushFirst) break;
    if (added == AddResult::kAdded) batch_.End(burst);
    at += burst.frames;
  }
  if (batch_.IsEmpty()) return at;
  const int sent = batch_.Send(SendFd());
  if (sent < 0) {
    const GsoBurst& burst = batch_[0];
    if (burst.frames > 1 && IsGsoRefusal(errno)) {
      counters_.txGsoRefused++;
      usesGso_ = false;
      return burst.first;
    }
    const int error = errno;
    busy = IsBusy(error) && (error != ENOBUFS || IsWorthWaiting(burst));
    if (busy) {
      counters_.txBusy++;
    } else {
      counters_.TxFailed(error, burst.frames);
      waitsSince_.reset();
    }
    return burst.first + (busy ? 0 : burst.frames);
  }
  waitsSince_.reset();
  for (uint32_t i = 0; i < static_cast<uint32_t>(sent); i++) {
    const GsoBurst& burst = batch_[i];
    if (burst.frames == 1 && burst.frameBytes >= hopelessBytes_) hopelessBytes_ = UINT32_MAX;
    counters_.txFrames += burst.frames;
    for (uint32_t k = 0; k < burst.frames; k++) counters_.txBytes += frames_.tx[burst.first + k].len;
    if (burst.frames > 1) counters_.txBursts++, counters_.txBurstFrames += burst.frames;
    OnSent(burst);
  }
  return static_cast<uint32_t>(sent) == batch_.Count() ? at : batch_[sent].first;
}

/// Returns whether a burst stays in the ring that the kernel has no room for. One that has waited in vain is lost, so
/// that it does not hold up the frames behind it; from then on frames as long as it are lost at once, until one passes.
bool FrameSocket::IsWorthWaiting(const GsoBurst& burst) {
  if (burst.frameBytes >= hopelessBytes_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (!waitsSince_) waitsSince_ = now;
  if (now - *waitsSince_ < kMaxWait) return true;
  hopelessBytes_ = burst.frameBytes;
  return false;
}

GsoBurst FrameSocket::BurstAt(uint32_t at, uint32_t end) {
  Descriptor& first = frames_.tx[at];
  GsoBurst burst{at, 1, frames_.At(first.addr, first.len), first.len};
  while (usesGso_ && burst.frames < kMaxBurstFrames && at + burst.frames != end) {
    Descriptor& next = frames_.tx[at + burst.frames];
    const bool fits = next.len > 0 && next.len <= first.len && frames_.At(next.addr, next.len) != nullptr;
    if (!(next.options & kTxContinuesBurst) || !fits) break;
    burst.frames++;
    if (next.len < first.len) break;
  }
  return burst;
}

uint32_t FrameSocket::PutPayloads(GsoBurst& burst, uint32_t headerBytes) {
  uint32_t total = 0, k = 0;
  for (; k < burst.frames; k++) {
    const Descriptor& d = frames_.tx[burst.first + k];
    const uint32_t bytes = d.len - headerBytes;
    if (k > 0 && (d.len <= headerBytes || total + bytes > kMaxBurstBytes)) break;
    batch_.Put(frames_.At(d.addr, d.len) + headerBytes, bytes);
    total += bytes;
  }
  burst.frames = k;
  return total;
}

uint32_t FrameSocket::ReceiveFrom(int fd) {
  const uint64_t supers = counters_.rxSupers;
  const uint32_t first = Target().rx.Producer();
  const bool isMore = ReceiveBatch(fd, kFirstMessages) == kFirstMessages;
  // A few super-packets are many frames already.
  if (isMore && counters_.rxSupers == supers) ReceiveBatch(fd, kBatch - kFirstMessages);
  return Target().rx.Producer() - first;
}

uint32_t FrameSocket::ReceiveBatch(int fd, uint32_t limit) {
  Frames& into = Target();
  Ring& ring = into.rx;
  const uint32_t first = ring.Producer();
  if (ring.Filled() == 0) {
    ring.ReuseSlots(used_);
    used_ = 0;
  }
  uint32_t count = std::min(ring.Free(), limit);
  for (uint32_t i = 0; i < count; i++) {
    uint8_t* slot = into.At(ring[first + i].addr, into.slotBytes);
    if (slot == nullptr) {
      count = i;
    } else {
      PrepareReceive(i, slot);
    }
  }
  if (count == 0) return 0;
  const int received = recvmmsg(fd, received_, count, 0, nullptr);
  if (received < 0) {
    const int error = errno;
    counters_.RxFailed(error);
    OnReceiveError(error);
    return 0;
  }
  uint32_t good = 0;
  for (uint32_t i = 0; i < static_cast<uint32_t>(received); i++) {
    Descriptor& to = ring[first + good];
    // An earlier message may have been dropped. Both slots are free, so the descriptors swap slots and none is lost.
    std::swap(to.addr, ring[first + i].addr);
    if (received_[i].msg_hdr.msg_flags & MSG_TRUNC || !CompleteReceive(i, to)) {
      counters_.rxTruncated++;
    } else {
      good++;
    }
  }
  ring.SetProducer(first + good);
  used_ += good;
  return static_cast<uint32_t>(received);
}

bool FrameSocket::CompleteSuperPacket(uint32_t headerBytes, uint32_t segmentBytes, Descriptor& to) {
  Target().FoldIcrcs(Target().At(to.addr, to.len) + headerBytes, to.len - headerBytes, segmentBytes, to);
  if (segmentBytes == 0 || to.len <= headerBytes + segmentBytes) {
    CountReceived(1, to.len);
    return true;
  }
  if (segmentBytes > kMaxSegmentBytes) return false;
  to.options |= segmentBytes << kRxSegmentShift;
  const uint32_t frames = (to.len - headerBytes + segmentBytes - 1) / segmentBytes;
  CountReceived(frames, to.len + uint64_t{frames - 1} * headerBytes);
  counters_.rxSupers++;
  counters_.rxSuperFrames += frames;
  return true;
}

void FrameSocket::CountReceived(uint32_t frames, uint64_t bytes) {
  counters_.rxFrames += frames;
  counters_.rxBytes += bytes;
}
