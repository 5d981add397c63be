#include "gate.h"

#include <sys/socket.h>
#include <cerrno>
#include <cstring>

#include "core/fd.h"

namespace {

/// Kinds of records, and their head: as KIND of src/broker/control/framefilter.ts.
enum Kind : uint32_t { kReceived, kSent, kBegin, kMark, kEnd };
struct Head {
  uint32_t kind, options, bytes;
};
/// Bytes that wait for the broker, beyond which the gate takes no more frames.
constexpr size_t kMaxUnsent = 1 << 20;
/// Bytes of one call that receives.
constexpr size_t kChunk = 1 << 16;
/// Most bytes of a frame that the broker may send.
constexpr uint32_t kMaxFrame = 1 << 17;

/// Removes the bytes of a queue that are done.
void Compact(std::vector<uint8_t>& queue, size_t& done) {
  queue.erase(queue.begin(), queue.begin() + static_cast<ptrdiff_t>(done));
  done = 0;
}

}  // namespace

void Gate::Begin(int fd) {
  const Head head{kBegin, 0, 0};
  // the first bytes of a stream, which has room
  send(fd, &head, sizeof head, MSG_DONTWAIT | MSG_NOSIGNAL);
}

Gate::~Gate() { CloseFd(fd_); }

void Gate::Attach(uint8_t* memory, const FrameLayout& layout) {
  memory_ = memory;
  tx_.Attach(memory, layout.tx);
  rx_.Attach(memory, layout.rx);
}

uint32_t Gate::TakeReceived() {
  uint32_t taken = 0;
  for (; rx_.Filled() > 0 && HasRoom(); taken++) {
    const Descriptor& frame = rx_[rx_.Consumer()];
    Put(kReceived, frame.options, memory_ + frame.addr, frame.len);
    rx_.SetConsumer(rx_.Consumer() + 1);
  }
  return taken;
}

bool Gate::HasRoom() const { return !isEnding_ && unsent_.size() - sentTo_ < kMaxUnsent; }

void Gate::TakeSent() {
  const uint32_t last = tx_.Producer() - 1;
  const Descriptor& frame = tx_[last];
  Put(kSent, frame.options, memory_ + frame.addr, frame.len);
  tx_.SetProducer(last);
}

bool Gate::Front(Frame& frame) {
  for (;;) {
    Head head;
    if (unread_.size() - readTo_ < sizeof head) return false;
    memcpy(&head, &unread_[readTo_], sizeof head);
    if (head.bytes > kMaxFrame) hasEnded_ = true;
    if (unread_.size() - readTo_ - sizeof head < head.bytes) return false;
    if (head.kind == kReceived || head.kind == kSent) {
      frame = {head.kind == kReceived, head.options, head.bytes, unread_.data() + readTo_ + sizeof head};
      return true;
    }
    if (head.kind == kMark && marks_ > 0) marks_--;
    if (head.kind == kEnd && !isEnding_) {
      Put(kEnd, 0, nullptr, 0);
      isEnding_ = true;
    }
    Pop();
  }
}

void Gate::Pop() {
  Head head;
  memcpy(&head, &unread_[readTo_], sizeof head);
  readTo_ += sizeof head + head.bytes;
}

void Gate::Exchange() {
  Receive();
  Send();
}

void Gate::Mark() {
  if (hasEnded_ || isEnding_) return;
  Put(kMark, 0, nullptr, 0);
  marks_++;
}

void Gate::Put(uint32_t kind, uint32_t options, const uint8_t* data, uint32_t bytes) {
  const Head head{kind, options, bytes};
  const auto* first = reinterpret_cast<const uint8_t*>(&head);
  unsent_.insert(unsent_.end(), first, first + sizeof head);
  unsent_.insert(unsent_.end(), data, data + bytes);
}

void Gate::Send() {
  while (!hasEnded_ && sentTo_ < unsent_.size()) {
    const ssize_t sent = send(fd_, &unsent_[sentTo_], unsent_.size() - sentTo_, MSG_DONTWAIT | MSG_NOSIGNAL);
    // the end of the stream is received, too
    if (sent < 0) break;
    sentTo_ += static_cast<size_t>(sent);
  }
  if (hasEnded_) sentTo_ = unsent_.size();
  if (sentTo_ > kMaxUnsent || sentTo_ == unsent_.size()) Compact(unsent_, sentTo_);
}

void Gate::Receive() {
  Compact(unread_, readTo_);
  while (!hasEnded_ && unread_.size() < kChunk + kMaxFrame) {
    const size_t before = unread_.size();
    unread_.resize(before + kChunk);
    const ssize_t received = recv(fd_, &unread_[before], kChunk, MSG_DONTWAIT);
    unread_.resize(before + static_cast<size_t>(received > 0 ? received : 0));
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && errno == EAGAIN) return;
    if (received > 0) continue;
    hasEnded_ = true;
    marks_ = 0;
  }
}
