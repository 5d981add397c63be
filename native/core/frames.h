// The frame contract of src/link/link.ts in C++: two rings of descriptors in the card's memory, and counters. Each
// cursor of a ring has one writer; the producer and the consumer may be two threads.
//
// Core is the library that moves frames between these rings and the network, and computes the part of their ICRC that
// links take over. It knows frames, IP and UDP, nothing of RoCE above them, and neither Node nor libibverbs.
//
// Words: a frame is an Ethernet frame. A GSO burst is consecutive frames of the transmit ring that the kernel takes as
// one super-packet; a super-packet received by GRO stays one descriptor of the receive ring. To transfer a socket is to
// let a second thread, which adopts it, move its frames.
//
// Threads: an object belongs to one thread, unless its header says more, and functions may be called in any thread. Two
// things are shared: the registry of transferred sockets (sharedsocket.h), behind mutexes, and the last frames
// (lastframes.h), which signal handlers and the end of the process read without a lock. Nothing throws. Functions
// return a count, a file descriptor or -errno.
#pragma once
#include <cstdint>
#include <memory>

/// Option bits of descriptors. Their source is the card (TxOption, TX_ICRC_SHIFT, RxOption, RX_SEGMENT_SHIFT of
/// assembly/), and src/link/link.ts declares them too. test/link/options.test.ts compares all three.
constexpr uint32_t kTxContinuesBurst = 0x10000;
constexpr uint32_t kTxFetchSpan = 0x8000;
constexpr uint32_t kTxIcrcShift = 17;
constexpr uint32_t kRxIcrcFolded = 0x8000;
constexpr uint32_t kRxIpIdUnknown = 0x10000;
constexpr uint32_t kRxSegmentShift = 17;
constexpr uint32_t kMaxSegmentBytes = UINT32_MAX >> kRxSegmentShift;
/// Bytes of a slot that holds the longest super-packet: Ethernet header with a tag, IPv6 header, and the largest
/// payload that its length field can say. COALESCED_BYTES of src/link/sockets.ts.
constexpr uint32_t kCoalescedBytes = 65600;

class Regions;

/// Layout of the kernel's xdp_desc. `addr` is an offset in the card's memory.
struct Descriptor {
  uint64_t addr;
  uint32_t len;
  uint32_t options;
};

/// The place of a ring: offsets in the card's memory, and the number of its descriptors less one.
struct RingLayout {
  uint32_t producer, consumer, descriptors, mask;
};

/// The places of a card's rings, in the order of `NativeFrameSocket.attach` in src/native.ts.
struct FrameLayout {
  RingLayout tx, rx;
  uint32_t slotBytes;
  /// 1 if the link folds the ICRC of received packets, else 0.
  uint32_t foldsIcrc;
};

/// One ring. The cursors are free-running; the other side may be another thread, hence acquire and release.
class Ring {
 public:
  void Attach(uint8_t* memory, const RingLayout& layout);
  uint32_t Producer() const { return __atomic_load_n(producer_, __ATOMIC_ACQUIRE); }
  uint32_t Consumer() const { return __atomic_load_n(consumer_, __ATOMIC_ACQUIRE); }
  void SetProducer(uint32_t value) { __atomic_store_n(producer_, value, __ATOMIC_RELEASE); }
  void SetConsumer(uint32_t value) { __atomic_store_n(consumer_, value, __ATOMIC_RELEASE); }
  uint32_t Size() const { return mask_ + 1; }
  uint32_t Filled() const { return Producer() - Consumer(); }
  uint32_t Free() const { return mask_ + 1 - Filled(); }
  Descriptor& operator[](uint32_t n) { return descriptors_[n & mask_]; }
  /// Exchanges the slots of the next `count` descriptors for those of the last ones, which the caches still have. The
  /// ring must be empty.
  void ReuseSlots(uint32_t count);

 private:
  uint32_t* producer_ = nullptr;
  uint32_t* consumer_ = nullptr;
  Descriptor* descriptors_ = nullptr;
  uint32_t mask_ = 0;
};

/// The rings and slots of a card. Use nothing but `IsAttached` before `Attach`.
class Frames {
 public:
  Ring tx;
  Ring rx;
  uint32_t slotBytes = 0;
  /// The card wants the link to XOR its part of the ICRC into received packets.
  bool foldsIcrc = false;

  /// Uses a memory until Detach. It must stay where it is.
  void Attach(uint8_t* memory, uint64_t bytes, const FrameLayout& layout);
  void Detach();
  bool IsAttached() const { return base_ != nullptr; }
  /// Returns the address of `len` bytes at an offset of the memory, or null if they are not all inside.
  uint8_t* At(uint64_t addr, uint64_t len) const {
    return len <= bytes_ && addr <= bytes_ - len ? base_ + addr : nullptr;
  }
  /// Completes the ICRCs of all frames in the transmit ring that lack a part, and fetches the bytes that are elsewhere:
  /// the application may write or free them when the turn is over. Clears the options: descriptors that stay in the
  /// ring come here again.
  void CompleteIcrcs();
  /// XORs the link's part of the ICRC into each packet of a UDP payload, if the card wants it. @param segmentBytes of
  /// each packet but the last; 0 = there is one
  void FoldIcrcs(uint8_t* payload, uint32_t bytes, uint32_t segmentBytes, Descriptor& to);
  /// Returns the offset of an address that is inside the memory.
  uint64_t OffsetOf(const uint8_t* at) const { return static_cast<uint64_t>(at - base_); }

 private:
  void CompleteIcrc(Descriptor& d);
  /// Returns the address of the bytes that the link fetches, or null.
  const uint8_t* AtPlace(uint64_t place, uint32_t bytes) const;

  uint8_t* base_ = nullptr;
  uint64_t bytes_ = 0;
  std::shared_ptr<Regions> regions_;
};

/// Counters of a socket.
struct FrameCounters {
  uint64_t txFrames = 0, txBytes = 0, txBusy = 0, txTooLong = 0, txInvalid = 0, txErrors = 0, txLastError = 0;
  uint64_t txBursts = 0, txBurstFrames = 0, txGsoRefused = 0;
  uint64_t rxFrames = 0, rxBytes = 0, rxTruncated = 0, rxDropped = 0, rxErrors = 0, rxLastError = 0;
  uint64_t rxSupers = 0, rxSuperFrames = 0;
  /// The receive buffer that the kernel has granted, in bytes; 0 without a socket.
  uint64_t rxBufferBytes = 0;

  /// Calls with the name and the value of each counter.
  template <typename Visit>
  void ForEach(Visit visit) const {
    visit("tx_frames", txFrames);
    visit("tx_bytes", txBytes);
    visit("tx_busy", txBusy);
    visit("tx_too_long", txTooLong);
    visit("tx_invalid", txInvalid);
    visit("tx_errors", txErrors);
    visit("tx_last_errno", txLastError);
    visit("tx_gso_bursts", txBursts);
    visit("tx_gso_frames", txBurstFrames);
    visit("tx_gso_refused", txGsoRefused);
    visit("rx_frames", rxFrames);
    visit("rx_bytes", rxBytes);
    visit("rx_truncated", rxTruncated);
    visit("rx_dropped", rxDropped);
    visit("rx_errors", rxErrors);
    visit("rx_last_errno", rxLastError);
    visit("rx_gro_packets", rxSupers);
    visit("rx_gro_frames", rxSuperFrames);
    visit("rx_buffer_bytes", rxBufferBytes);
  }
  /// Counts frames that are lost because the kernel refuses them.
  void TxFailed(int error, uint32_t frames);
  void RxFailed(int error);
};
