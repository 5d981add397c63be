#include "frames.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "faultguard.h"
#include "icrc.h"
#include "regions.h"

void Ring::Attach(uint8_t* memory, const RingLayout& layout) {
  producer_ = reinterpret_cast<uint32_t*>(memory + layout.producer);
  consumer_ = reinterpret_cast<uint32_t*>(memory + layout.consumer);
  descriptors_ = reinterpret_cast<Descriptor*>(memory + layout.descriptors);
  mask_ = layout.mask;
}

void Ring::ReuseSlots(uint32_t count) {
  const uint32_t at = Producer();
  count = std::min(count, Size() / 2);
  for (uint32_t i = 0; i < count; i++) std::swap((*this)[at + i].addr, (*this)[at - 1 - i].addr);
}

void Frames::Attach(uint8_t* memory, uint64_t bytes, const FrameLayout& layout) {
  base_ = memory;
  bytes_ = bytes;
  tx.Attach(base_, layout.tx);
  rx.Attach(base_, layout.rx);
  slotBytes = layout.slotBytes;
  foldsIcrc = layout.foldsIcrc != 0;
  regions_ = Regions::Of(memory, bytes);
}

void Frames::Detach() {
  base_ = nullptr;
  regions_.reset();
}

const uint8_t* Frames::AtPlace(uint64_t place, uint32_t bytes) const {
  return place >> 32 == 0 ? At(place, bytes) : regions_->At(place, bytes);
}

void Frames::CompleteIcrcs() {
  for (uint32_t at = tx.Consumer(), end = tx.Producer(); at != end; at++)
    if (tx[at].options >> kTxIcrcShift) CompleteIcrc(tx[at]);
}

void Frames::CompleteIcrc(Descriptor& d) {
  const uint32_t span = d.options >> kTxIcrcShift;
  const bool isElsewhere = d.options & kTxFetchSpan;
  d.options &= kTxContinuesBurst;
  uint8_t* frame = At(d.addr, d.len);
  uint8_t* place = frame == nullptr ? nullptr : SpanOf(frame, d.len, span);
  if (place == nullptr) return;
  if (!isElsewhere) return ::CompleteIcrc(place, span, place);
  uint64_t source;
  memcpy(&source, place, sizeof source);
  const uint8_t* from = AtPlace(source, span);
  if (from != nullptr && TryAccess([=] { ::CompleteIcrc(place, span, from); })) return;
  if (from != nullptr) regions_->Lose(static_cast<uint32_t>(source >> 32));
  // a frame that has not its data is not sent
  d.len = 0;
}

void Frames::FoldIcrcs(uint8_t* payload, uint32_t bytes, uint32_t segmentBytes, Descriptor& to) {
  if (!foldsIcrc) return;
  to.options |= kRxIcrcFolded;
  if (segmentBytes == 0) segmentBytes = bytes;
  for (; bytes > segmentBytes; bytes -= segmentBytes, payload += segmentBytes) FoldIcrc(payload, segmentBytes);
  FoldIcrc(payload, bytes);
}

void FrameCounters::TxFailed(int error, uint32_t frames) {
  if (error == EMSGSIZE) {
    txTooLong += frames;
  } else {
    txErrors += frames;
    txLastError = error;
  }
}

void FrameCounters::RxFailed(int error) {
  if (error == EAGAIN || error == EINTR) return;
  rxErrors++;
  rxLastError = error;
}
