// The frame contract of src/link/link.ts as the addon sees it: two rings of descriptors in the card's memory.
#pragma once
#include <napi.h>
#include <sys/socket.h>
#include <cstdint>

/// Options of descriptors, as in src/link/link.ts.
constexpr uint32_t kTxContinuesRun = 0x10000;
constexpr uint32_t kTxIcrcShift = 17;
constexpr uint32_t kRxIcrcFolded = 0x8000;
constexpr uint32_t kRxIpIdUnknown = 0x10000;
constexpr uint32_t kRxSegmentShift = 17;
constexpr uint32_t kMostSegmentBytes = UINT32_MAX >> kRxSegmentShift;
/// Room for the longest super-packet: Ethernet with a tag, IPv6, and as much as its length field can say; COALESCED_BYTES
/// of src/link/sockets.ts.
constexpr uint32_t kCoalescedBytes = 65600;

/// IPV6_FREEBIND, which libc's headers lack.
constexpr int kIpv6FreeBind = 78;

/// Layout of the kernel's xdp_desc. `addr` is an offset in the card's memory.
struct Descriptor {
  uint64_t addr;
  uint32_t len;
  uint32_t options;
};

/// One ring. The cursors run freely; this process may share them with another thread, hence the ordering.
class Ring {
 public:
  /// `layout`: producer, consumer, descriptors (offsets in the memory), mask.
  void Attach(uint8_t* memory, const uint32_t* layout);
  uint32_t Producer() const { return __atomic_load_n(producer_, __ATOMIC_ACQUIRE); }
  uint32_t Consumer() const { return __atomic_load_n(consumer_, __ATOMIC_ACQUIRE); }
  void SetProducer(uint32_t value) { __atomic_store_n(producer_, value, __ATOMIC_RELEASE); }
  void SetConsumer(uint32_t value) { __atomic_store_n(consumer_, value, __ATOMIC_RELEASE); }
  uint32_t Filled() const { return Producer() - Consumer(); }
  uint32_t Free() const { return mask_ + 1 - Filled(); }
  Descriptor& operator[](uint32_t n) { return descriptors_[n & mask_]; }

 private:
  uint32_t* producer_ = nullptr;
  uint32_t* consumer_ = nullptr;
  Descriptor* descriptors_ = nullptr;
  uint32_t mask_ = 0;
};

/// The part of a card that a socket works on. Nothing of it is touched before Attach.
class Frames {
 public:
  Ring tx;
  Ring rx;
  uint32_t slotBytes = 0;
  /// The card wants the link's part in the ICRC of what is received.
  bool foldsIcrc = false;

  /// Arguments from JavaScript: the memory as Uint8Array, and a Uint32Array of tx layout, rx layout, slotBytes, foldsIcrc.
  /// The memory is referenced for as long as this object lives, so the cached pointer stays good.
  void Attach(const Napi::CallbackInfo& info);
  /// Other memory than a card's. `layout` as from JavaScript.
  void Attach(uint8_t* memory, uint64_t bytes, const uint32_t* layout);
  void Detach() { memory_.Reset(), base_ = nullptr; }
  bool IsAttached() const { return base_ != nullptr; }
  /// Address of `len` bytes at an offset of the memory, or null when they are not all inside.
  uint8_t* At(uint64_t addr, uint64_t len) const {
    return len <= bytes_ && addr <= bytes_ - len ? base_ + addr : nullptr;
  }

 private:
  Napi::Reference<Napi::Uint8Array> memory_;
  uint8_t* base_ = nullptr;
  uint64_t bytes_ = 0;
};

/// What happened to frames; the names that JavaScript sees are in ToObject.
struct FrameCounters {
  uint64_t txFrames = 0, txBytes = 0, txBusy = 0, txTooLong = 0, txInvalid = 0, txErrors = 0, txLastError = 0;
  uint64_t txRuns = 0, txRunFrames = 0, txRunsRefused = 0;
  uint64_t rxFrames = 0, rxBytes = 0, rxTruncated = 0, rxDropped = 0, rxErrors = 0, rxLastError = 0;
  uint64_t rxSupers = 0, rxSuperFrames = 0;

  Napi::Object ToObject(Napi::Env env) const;
  /// Counts refused frames. @returns whether they should stay in the ring and be tried again
  bool TxRefused(int error, uint32_t frames);
  void RxFailed(int error);
};

/// Asks for a receive buffer of so many bytes, beyond the system's limit where the privilege allows it.
void SetReceiveBuffer(int fd, int bytes);
void SetSendBuffer(int fd, int bytes);
/// Size of the receive buffer that the kernel granted.
int ReceiveBuffer(int fd);
/// Closes and forgets.
void CloseFd(int& fd);
