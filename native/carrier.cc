#include "carrier.h"

#include <algorithm>
#include <cerrno>

#include "icrc.h"

namespace {

/// Messages that a receiver asks for first: describing slots costs more than the system call when nothing is there.
constexpr uint32_t kFewMessages = 8;
/// Bytes of UDP payload of one run: with headers less than 64 KiB, from which on the kernel segments it at once.
/// RUN_BYTES of src/link/sockets.ts.
constexpr uint32_t kRunBytes = 65535 - 14 - 4 - 40 - 8;

/// Whether the kernel refuses a run because it is one: not known to it, or not on the way there.
bool IsAboutRuns(int error) { return error == EINVAL || error == EIO || error == EOPNOTSUPP || error == ENOPROTOOPT; }

}  // namespace

int32_t Carrier::SendAll() {
  if (!frames_.IsAttached()) return 0;
  Ring& ring = frames_.tx;
  const uint32_t first = ring.Consumer(), end = ring.Producer();
  const bool tookRuns = takesRuns_;
  uint32_t at = first;
  for (bool busy = false; at != end && !busy;) at = SendBatch(at, end, busy);
  ring.SetConsumer(at);
  const auto taken = static_cast<int32_t>(at - first);
  return tookRuns == takesRuns_ ? taken : ~taken;
}

/// @returns where the consumer of the ring, which was `at`, is then
uint32_t Carrier::SendBatch(uint32_t at, uint32_t end, bool& busy) {
  out_.Clear();
  while (at != end && !out_.IsFull()) {
    if (frames_.tx[at].len == 0) {
      at++;
      continue;
    }
    Run run = RunAt(at, end);
    const Fate fate = Add(run);
    if (fate == Fate::kWaits) break;
    if (fate == Fate::kAdded) out_.End(run);
    at += run.frames;
  }
  if (out_.IsEmpty()) return at;
  const int sent = out_.Send(SendFd());
  if (sent < 0) {
    const Run& run = out_[0];
    if (run.frames > 1 && IsAboutRuns(errno)) {
      counters_.txRunsRefused++;
      takesRuns_ = false;
      return run.first;
    }
    busy = counters_.TxRefused(errno, run.frames);
    return run.first + (busy ? 0 : run.frames);
  }
  for (uint32_t i = 0; i < static_cast<uint32_t>(sent); i++) {
    const Run& run = out_[i];
    counters_.txFrames += run.frames;
    for (uint32_t k = 0; k < run.frames; k++) counters_.txBytes += frames_.tx[run.first + k].len;
    if (run.frames > 1) counters_.txRuns++, counters_.txRunFrames += run.frames;
    OnSent(run);
  }
  return static_cast<uint32_t>(sent) == out_.Count() ? at : out_[sent].first;
}

Run Carrier::RunAt(uint32_t at, uint32_t end) {
  Descriptor& first = frames_.tx[at];
  Run run{at, 1, frames_.At(first.addr, first.len), first.len};
  CompleteIcrc(first);
  while (takesRuns_ && run.frames < kRunFrames && at + run.frames != end) {
    Descriptor& next = frames_.tx[at + run.frames];
    const bool fits = next.len > 0 && next.len <= first.len && frames_.At(next.addr, next.len) != nullptr;
    if (!(next.options & kTxContinuesRun) || !fits) break;
    CompleteIcrc(next);
    run.frames++;
    if (next.len < first.len) break;
  }
  return run;
}

/// Once: what stays in the ring is seen again.
void Carrier::CompleteIcrc(Descriptor& d) {
  const uint32_t share = d.options >> kTxIcrcShift;
  uint8_t* frame = frames_.At(d.addr, d.len);
  if (share == 0 || frame == nullptr) return;
  d.options &= (1u << kTxIcrcShift) - 1;
  ::CompleteIcrc(frame, d.len, share);
}

uint32_t Carrier::PutPayloads(Run& run, uint32_t headerBytes) {
  uint32_t total = 0, k = 0;
  for (; k < run.frames; k++) {
    const Descriptor& d = frames_.tx[run.first + k];
    const uint32_t bytes = d.len - headerBytes;
    if (k > 0 && (d.len <= headerBytes || total + bytes > kRunBytes)) break;
    out_.Put(frames_.At(d.addr, d.len) + headerBytes, bytes);
    total += bytes;
  }
  run.frames = k;
  return total;
}

uint32_t Carrier::ReceiveFrom(int fd) {
  const uint64_t supers = counters_.rxSupers;
  const uint32_t few = ReceiveBatch(fd, kFewMessages);
  // Of super-packets a few are much already.
  if (few < kFewMessages || counters_.rxSupers != supers) return few;
  return few + ReceiveBatch(fd, kBatch - kFewMessages);
}

uint32_t Carrier::ReceiveBatch(int fd, uint32_t limit) {
  Frames& into = Into();
  Ring& ring = into.rx;
  const uint32_t first = ring.Producer();
  uint32_t count = std::min(ring.Free(), limit);
  for (uint32_t i = 0; i < count; i++) {
    uint8_t* slot = into.At(ring[first + i].addr, into.slotBytes);
    if (slot == nullptr) {
      count = i;
    } else {
      Offer(i, slot);
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
    // Both slots are free, so a frame behind a bad one may bring its slot along.
    std::swap(to.addr, ring[first + i].addr);
    if (received_[i].msg_hdr.msg_flags & MSG_TRUNC || !Accept(i, to)) {
      counters_.rxTruncated++;
    } else {
      good++;
    }
  }
  ring.SetProducer(first + good);
  return good;
}

bool Carrier::AcceptSuper(uint32_t headerBytes, uint32_t segmentBytes, Descriptor& to) {
  FoldIcrcs(Into().At(to.addr, to.len) + headerBytes, to.len - headerBytes, segmentBytes, to);
  if (segmentBytes == 0 || to.len <= headerBytes + segmentBytes) {
    CountReceived(1, to.len);
    return true;
  }
  if (segmentBytes > kMostSegmentBytes) return false;
  to.options |= segmentBytes << kRxSegmentShift;
  const uint32_t frames = (to.len - headerBytes + segmentBytes - 1) / segmentBytes;
  CountReceived(frames, to.len + uint64_t{frames - 1} * headerBytes);
  counters_.rxSupers++;
  counters_.rxSuperFrames += frames;
  return true;
}

void Carrier::FoldIcrcs(uint8_t* payload, uint32_t bytes, uint32_t segmentBytes, Descriptor& to) {
  if (!Into().foldsIcrc) return;
  to.options |= kRxIcrcFolded;
  if (segmentBytes == 0) segmentBytes = bytes;
  for (; bytes > segmentBytes; bytes -= segmentBytes, payload += segmentBytes) FoldIcrc(payload, segmentBytes);
  FoldIcrc(payload, bytes);
}

void Carrier::CountReceived(uint32_t frames, uint64_t bytes) {
  counters_.rxFrames += frames;
  counters_.rxBytes += bytes;
}
