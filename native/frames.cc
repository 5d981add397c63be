#include "frames.h"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "icrc.h"
#include "lastframes.h"

void Ring::Attach(uint8_t* memory, const uint32_t* layout) {
  producer_ = reinterpret_cast<uint32_t*>(memory + layout[0]);
  consumer_ = reinterpret_cast<uint32_t*>(memory + layout[1]);
  descriptors_ = reinterpret_cast<Descriptor*>(memory + layout[2]);
  mask_ = layout[3];
}

void Ring::ReuseSlots(uint32_t count) {
  const uint32_t at = Producer();
  count = std::min(count, Size() / 2);
  for (uint32_t i = 0; i < count; i++) std::swap((*this)[at + i].addr, (*this)[at - 1 - i].addr);
}

void Frames::Attach(const Napi::CallbackInfo& info) {
  auto memory = info[0].As<Napi::Uint8Array>();
  Attach(memory.Data(), memory.ByteLength(), info[1].As<Napi::Uint32Array>().Data());
  memory_ = Napi::Persistent(memory);
}

void Frames::Attach(uint8_t* memory, uint64_t bytes, const uint32_t* layout) {
  base_ = memory;
  bytes_ = bytes;
  tx.Attach(base_, layout);
  rx.Attach(base_, layout + 4);
  slotBytes = layout[8];
  foldsIcrc = layout[9] != 0;
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
  const uint8_t* from = place;
  if (isElsewhere) {
    uint64_t address;
    memcpy(&address, place, sizeof address);
    from = At(address, span);
    if (from == nullptr) return;
  }
  ::CompleteIcrc(place, span, from);
}

void Frames::FoldIcrcs(uint8_t* payload, uint32_t bytes, uint32_t segmentBytes, Descriptor& to) {
  if (!foldsIcrc) return;
  to.options |= kRxIcrcFolded;
  if (segmentBytes == 0) segmentBytes = bytes;
  for (; bytes > segmentBytes; bytes -= segmentBytes, payload += segmentBytes) FoldIcrc(payload, segmentBytes);
  FoldIcrc(payload, bytes);
}

Napi::Object FrameCounters::ToObject(Napi::Env env) const {
  auto object = Napi::Object::New(env);
  auto set = [&](const char* name, uint64_t value) { object.Set(name, static_cast<double>(value)); };
  set("tx_frames", txFrames);
  set("tx_bytes", txBytes);
  set("tx_busy", txBusy);
  set("tx_too_long", txTooLong);
  set("tx_invalid", txInvalid);
  set("tx_errors", txErrors);
  set("tx_last_errno", txLastError);
  set("tx_gso_bursts", txBursts);
  set("tx_gso_frames", txBurstFrames);
  set("tx_gso_refused", txGsoRefused);
  set("rx_frames", rxFrames);
  set("rx_bytes", rxBytes);
  set("rx_truncated", rxTruncated);
  set("rx_dropped", rxDropped);
  set("rx_errors", rxErrors);
  set("rx_last_errno", rxLastError);
  set("rx_gro_packets", rxSupers);
  set("rx_gro_frames", rxSuperFrames);
  return object;
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

void SetReceiveBuffer(int fd, int bytes) {
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0)
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

void SetSendBuffer(int fd, int bytes) {
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

int ReceiveBuffer(int fd) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size);
  return bytes;
}

void CloseFd(int& fd) {
  DropLastFramesOf(fd);
  if (fd >= 0) close(fd);
  fd = -1;
}
