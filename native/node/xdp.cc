// AF_XDP sockets whose UMEM and rings all lie in the card's memory. Once a socket is bound, JavaScript (src/link) reads
// and writes its rings, and calls the addon only to wake the kernel.
#include <linux/if_xdp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <vector>

#include "core/fd.h"
#include "arguments.h"
#include "exports.h"
#include "fds.h"

namespace {

// Constants that the headers of Debian 12 lack.
constexpr int kMaxTxSkbBudget = 9;   // XDP_MAX_TX_SKB_BUDGET
constexpr int kPreferBusyPoll = 69;  // SO_PREFER_BUSY_POLL
constexpr int kBusyPollBudget = 70;  // SO_BUSY_POLL_BUDGET

/// Bytes of an entry of the fill and the completion ring.
constexpr uint32_t kAddressBytes = 8;

/// @param result of a system call
Napi::Value ResultOf(const Napi::CallbackInfo& info, ssize_t result) {
  return Result(info, result < 0 ? -errno : 0);
}

/// In the order of XskRing in src/native.ts.
struct RingKind {
  int option;
  off_t page;
  xdp_ring_offset xdp_mmap_offsets::*offset;
  uint32_t entryBytes;
};
constexpr RingKind kRings[] = {
    {XDP_RX_RING, XDP_PGOFF_RX_RING, &xdp_mmap_offsets::rx, sizeof(xdp_desc)},
    {XDP_TX_RING, XDP_PGOFF_TX_RING, &xdp_mmap_offsets::tx, sizeof(xdp_desc)},
    {XDP_UMEM_FILL_RING, static_cast<off_t>(XDP_UMEM_PGOFF_FILL_RING), &xdp_mmap_offsets::fr, kAddressBytes},
    {XDP_UMEM_COMPLETION_RING, static_cast<off_t>(XDP_UMEM_PGOFF_COMPLETION_RING), &xdp_mmap_offsets::cr, kAddressBytes},
};

class XskSocketObject : public Napi::ObjectWrap<XskSocketObject> {
 public:
  using Self = XskSocketObject;
  static Napi::Function Define(Napi::Env env) {
    return DefineClass(env, "XskSocket",
                       {InstanceMethod<&Self::Open>("open"), InstanceMethod<&Self::RegisterUmem>("registerUmem"),
                        InstanceMethod<&Self::MapRing>("mapRing"), InstanceMethod<&Self::Bind>("bind"),
                        InstanceMethod<&Self::BusyPoll>("busyPoll"), InstanceMethod<&Self::TxBudget>("txBudget"),
                        InstanceMethod<&Self::IsZeroCopy>("isZeroCopy"),
                        InstanceMethod<&Self::Statistics>("statistics"), InstanceMethod<&Self::Close>("close")});
  }
  explicit XskSocketObject(const Napi::CallbackInfo& info) : ObjectWrap(info) {}
  ~XskSocketObject() override { CloseAll(); }

 private:
  struct Mapping {
    uint8_t* at;
    size_t bytes;
  };

  // open(the card's memory): the file descriptor, or -errno
  Napi::Value Open(const Napi::CallbackInfo& info) {
    auto memory = info[0].As<Napi::Uint8Array>();
    memory_ = Napi::Persistent(memory);
    base_ = memory.Data();
    bytes_ = memory.ByteLength();
    fd_ = KernelSocket(AF_XDP, SOCK_RAW);
    return Napi::Number::New(info.Env(), fd_ < 0 ? -errno : fd_);
  }

  // registerUmem(offset, bytes, bytes of a chunk): 0 or -errno
  Napi::Value RegisterUmem(const Napi::CallbackInfo& info) {
    xdp_umem_reg umem{};
    const uint64_t offset = info[0].As<Napi::Number>().Int64Value();
    umem.len = info[1].As<Napi::Number>().Int64Value();
    umem.chunk_size = info[2].As<Napi::Number>();
    if (!IsInside(offset, umem.len)) return Napi::Number::New(info.Env(), -EFAULT);
    umem.addr = reinterpret_cast<uint64_t>(base_ + offset);
    return ResultOf(info, setsockopt(fd_, SOL_XDP, XDP_UMEM_REG, &umem, sizeof umem));
  }

  // mapRing(kind, entries, offset, room): offsets in the memory of producer, consumer, flags and descriptors, or -errno
  Napi::Value MapRing(const Napi::CallbackInfo& info) {
    const uint32_t kind = info[0].As<Napi::Number>();
    const uint32_t entries = info[1].As<Napi::Number>();
    const uint64_t offset = info[2].As<Napi::Number>().Int64Value();
    const uint64_t room = info[3].As<Napi::Number>().Int64Value();
    xdp_ring_offset ring{};
    const int refused = Map(kRings[kind & 3], entries, offset, room, ring);
    if (refused < 0) return Napi::Number::New(info.Env(), refused);
    auto places = Napi::Uint32Array::New(info.Env(), 4);
    places[0] = static_cast<uint32_t>(offset + ring.producer);
    places[1] = static_cast<uint32_t>(offset + ring.consumer);
    places[2] = static_cast<uint32_t>(offset + ring.flags);
    places[3] = static_cast<uint32_t>(offset + ring.desc);
    return places;
  }

  int Map(const RingKind& kind, uint32_t entries, uint64_t offset, uint64_t room, xdp_ring_offset& ring) {
    if (setsockopt(fd_, SOL_XDP, kind.option, &entries, sizeof entries) != 0) return -errno;
    xdp_mmap_offsets offsets{};
    socklen_t size = sizeof offsets;
    if (getsockopt(fd_, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &size) != 0) return -errno;
    ring = offsets.*kind.offset;
    const uint64_t needed = ring.desc + static_cast<uint64_t>(entries) * kind.entryBytes;
    const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t bytes = (needed + page - 1) / page * page;
    if (bytes > room || !IsInside(offset, room)) return -EFAULT;
    void* at = mmap(base_ + offset, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd_, kind.page);
    if (at == MAP_FAILED) return -errno;
    mappings_.push_back({static_cast<uint8_t*>(at), bytes});
    return 0;
  }

  // bind(ifindex, queue, flags, file descriptor of the socket whose UMEM is shared): 0 or -errno
  Napi::Value Bind(const Napi::CallbackInfo& info) {
    sockaddr_xdp address{};
    address.sxdp_family = AF_XDP;
    address.sxdp_ifindex = info[0].As<Napi::Number>();
    address.sxdp_queue_id = info[1].As<Napi::Number>();
    address.sxdp_flags = static_cast<uint16_t>(info[2].As<Napi::Number>().Uint32Value());
    address.sxdp_shared_umem_fd = info[3].As<Napi::Number>();
    return ResultOf(info, bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address));
  }

  // busyPoll(microseconds, frames): 0 or -errno
  Napi::Value BusyPoll(const Napi::CallbackInfo& info) {
    const int on = 1, microseconds = info[0].As<Napi::Number>(), budget = info[1].As<Napi::Number>();
    int result = setsockopt(fd_, SOL_SOCKET, kPreferBusyPoll, &on, sizeof on);
    if (result == 0) result = setsockopt(fd_, SOL_SOCKET, SO_BUSY_POLL, &microseconds, sizeof microseconds);
    if (result == 0) result = setsockopt(fd_, SOL_SOCKET, kBusyPollBudget, &budget, sizeof budget);
    return Result(info, result);
  }

  // txBudget(frames that one xskWakeTx sends in copy mode): 0 or -errno
  Napi::Value TxBudget(const Napi::CallbackInfo& info) {
    const uint32_t frames = info[0].As<Napi::Number>();
    return ResultOf(info, setsockopt(fd_, SOL_XDP, kMaxTxSkbBudget, &frames, sizeof frames));
  }

  Napi::Value IsZeroCopy(const Napi::CallbackInfo& info) {
    xdp_options options{};
    socklen_t size = sizeof options;
    const int result = getsockopt(fd_, SOL_XDP, XDP_OPTIONS, &options, &size);
    return Napi::Boolean::New(info.Env(), result == 0 && (options.flags & XDP_OPTIONS_ZEROCOPY));
  }

  Napi::Value Statistics(const Napi::CallbackInfo& info) {
    xdp_statistics counted{};
    socklen_t size = sizeof counted;
    getsockopt(fd_, SOL_XDP, XDP_STATISTICS, &counted, &size);
    auto object = Napi::Object::New(info.Env());
    object.Set("rxDropped", static_cast<double>(counted.rx_dropped));
    object.Set("rxRingFull", static_cast<double>(counted.rx_ring_full));
    object.Set("rxFillEmpty", static_cast<double>(counted.rx_fill_ring_empty_descs));
    object.Set("rxInvalid", static_cast<double>(counted.rx_invalid_descs));
    object.Set("txInvalid", static_cast<double>(counted.tx_invalid_descs));
    return object;
  }

  void Close(const Napi::CallbackInfo&) { CloseAll(); }

  void CloseAll() {
    // The card's memory must stay mapped as a whole, and the kernel keeps the socket open while one of its rings is
    // mapped.
    for (const Mapping& mapping : mappings_)
      mmap(mapping.at, mapping.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    mappings_.clear();
    CloseFd(fd_);
    memory_.Reset();
    bytes_ = 0;
  }

  bool IsInside(uint64_t offset, uint64_t bytes) const { return bytes <= bytes_ && offset <= bytes_ - bytes; }

  int fd_ = -1;
  std::vector<Mapping> mappings_;
  Napi::Reference<Napi::Uint8Array> memory_;
  uint8_t* base_ = nullptr;
  uint64_t bytes_ = 0;
};

// xskWakeTx(file descriptor): 0 or -errno. Any thread of the process may call it.
Napi::Value WakeTx(const Napi::CallbackInfo& info) {
  return ResultOf(info, sendto(info[0].As<Napi::Number>(), nullptr, 0, MSG_DONTWAIT, nullptr, 0));
}

// xskWakeRx(file descriptor): 0 or -errno. Any thread of the process may call it.
Napi::Value WakeRx(const Napi::CallbackInfo& info) {
  return ResultOf(info, recvfrom(info[0].As<Napi::Number>(), nullptr, 0, MSG_DONTWAIT, nullptr, nullptr));
}

}  // namespace

void DefineXskSocket(Napi::Object exports) {
  exports.Set("XskSocket", XskSocketObject::Define(exports.Env()));
  exports.Set("xskWakeTx", Napi::Function::New<WakeTx>(exports.Env(), "xskWakeTx"));
  exports.Set("xskWakeRx", Napi::Function::New<WakeRx>(exports.Env(), "xskWakeRx"));
}
