#include "lastframes.h"

#include <linux/if_packet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "fd.h"
#include "udpmessage.h"

namespace {

/// Room for the longest headers, a datagram of queue pair 1, and its ICRC.
constexpr uint32_t kMaxBytes = 384;
constexpr uint32_t kChunkSlots = 256;
constexpr uint32_t kMaxChunks = 4096;
constexpr uint32_t kIndexBits = 20;
static_assert(kChunkSlots * kMaxChunks == 1u << kIndexBits);
/// Waits for room in a socket, in all, and the milliseconds of each.
constexpr int kMaxWaits = 40;
constexpr int kWaitMs = 5;
/// The signals that end a process which does not expect them, and that people and service managers send.
constexpr int kSignals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

enum State : uint32_t { kFree, kReady, kSending, kSent };

struct Slot {
  std::atomic<uint32_t> state{kFree};
  uint32_t generation = 0;
  const void* owner;
  int fd;
  socklen_t nameBytes;
  uint32_t controlBytes;
  uint32_t at;  // of what the socket sends
  uint32_t bytes;
  sockaddr_in6 name;  // or a sockaddr_in, or a sockaddr_ll
  alignas(cmsghdr) uint8_t control[kAddressControlBytes];
  uint8_t frame[kMaxBytes];
};
static_assert(sizeof(sockaddr_ll) <= sizeof(sockaddr_in6));

// Read by signal handlers, which take no lock. Chunks are never freed.
std::atomic<Slot*> chunks[kMaxChunks];
std::atomic<uint32_t> chunkCount{0};
/// A child process that was forked has a copy of the slots, whose connections are not its own.
std::atomic<pid_t> process{0};

struct Bookkeeping {
  std::mutex mutex;
  std::vector<uint32_t> freeSlots;
};

Bookkeeping& Books() {
  // Never destroyed: threads may outlive main.
  static auto* books = new Bookkeeping;
  return *books;
}

/// The actions that the handler restores, at the places of kSignals. Written before the handler is installed.
struct sigaction before[sizeof kSignals / sizeof *kSignals];

Slot& SlotAt(uint32_t index) {
  return chunks[index / kChunkSlots].load(std::memory_order_acquire)[index % kChunkSlots];
}

template <typename Do>
void ForEachSlot(Do&& act) {
  const uint32_t count = chunkCount.load(std::memory_order_acquire) * kChunkSlots;
  for (uint32_t i = 0; i < count; i++) act(i, SlotAt(i));
}

bool Take(Slot& slot) {
  uint32_t expected = kReady;
  return slot.state.compare_exchange_strong(expected, kSending, std::memory_order_acq_rel);
}

/// Async-signal-safe. @param waits left for full sockets, of all frames together
void SendSlot(Slot& slot, int& waits) {
  iovec piece{slot.frame + slot.at, slot.bytes};
  msghdr message{};
  message.msg_name = &slot.name;
  message.msg_namelen = slot.nameBytes;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = slot.controlBytes > 0 ? slot.control : nullptr;
  message.msg_controllen = slot.controlBytes;
  while (sendmsg(slot.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && (errno == EAGAIN || errno == ENOBUFS)) {
    if (waits-- <= 0) return;
    pollfd room{slot.fd, POLLOUT, 0};
    poll(&room, 1, kWaitMs);
  }
}

/// Sends what has not been sent. Async-signal-safe.
void SendAll() {
  if (process.load() != getpid()) return;
  int waits = kMaxWaits;
  ForEachSlot([&](uint32_t, Slot& slot) {
    if (!Take(slot)) return;
    SendSlot(slot, waits);
    slot.state.store(kSent, std::memory_order_release);
  });
}

/// Sends the last frames, and lets the signal do what it would have done.
void OnSignal(int number) {
  const int error = errno;
  SendAll();
  for (size_t i = 0; i < sizeof kSignals / sizeof *kSignals; i++)
    if (kSignals[i] == number) sigaction(number, &before[i], nullptr);
  errno = error;
  // It is blocked until this handler returns.
  raise(number);
}

/// Whether an action ends the process: the default one, or Node's own, which restores the terminal and raises the
/// signal again. Node's is the only one that the kernel resets and that restarts no system call; libuv's, for a program
/// that listens to the signal, restarts them.
bool EndsProcess(const struct sigaction& action) {
  if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) return action.sa_handler == SIG_DFL;
  return (action.sa_flags & SA_RESETHAND) && !(action.sa_flags & SA_RESTART);
}

/// Addresses the slot's frame for a packet socket, which sends it whole.
void AddressFrame(Slot& slot, int ifindex) {
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = ifindex;
  memcpy(&slot.name, &to, sizeof to);
  slot.nameBytes = sizeof to;
}

/// Addresses the slot's frame for a UDP socket, which sends the payload. @returns 0 or -errno
int AddressDatagram(Slot& slot, int ifindex) {
  Datagram datagram;
  if (!ParseUdp(slot.frame, slot.bytes, datagram)) return -EINVAL;
  slot.at = static_cast<uint32_t>(datagram.payload - slot.frame);
  slot.bytes = datagram.payloadBytes;
  msghdr message{};
  message.msg_control = slot.control;
  AddressMessage(message, slot.name, datagram, ifindex);
  slot.nameBytes = message.msg_namelen;
  slot.controlBytes = static_cast<uint32_t>(message.msg_controllen);
  return 0;
}

/// @returns the index of a free slot, which is removed from the free ones, or -errno. The caller holds the mutex.
int64_t TakeFreeSlot(Bookkeeping& books) {
  if (books.freeSlots.empty()) {
    const uint32_t count = chunkCount.load();
    if (count == kMaxChunks) return -ENOSPC;
    chunks[count].store(new Slot[kChunkSlots], std::memory_order_release);
    chunkCount.store(count + 1, std::memory_order_release);
    for (uint32_t i = kChunkSlots; i-- > 0;) books.freeSlots.push_back(count * kChunkSlots + i);
  }
  const uint32_t index = books.freeSlots.back();
  books.freeSlots.pop_back();
  return index;
}

/// The caller holds the mutex.
void FreeSlot(Bookkeeping& books, uint32_t index) {
  Slot& slot = SlotAt(index);
  for (uint32_t state = slot.state.load(); state != kFree;) {
    // Another thread sends it, which takes no lock.
    if (state == kSending) state = slot.state.load();
    else if (slot.state.compare_exchange_weak(state, kFree)) {
      slot.generation++;
      books.freeSlots.push_back(index);
      return;
    }
  }
}

/// exit(3) runs it. The file is never unloaded before (-z nodelete).
__attribute__((destructor)) void OnExit() { SendAll(); }

}  // namespace

int64_t KeepLastFrame(const void* owner, int fd, const uint8_t* frame, size_t bytes, int ifindex) {
  int domain = 0;
  socklen_t size = sizeof domain;
  if (bytes > kMaxBytes) return -EMSGSIZE;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return -errno;
  Bookkeeping& books = Books();
  const std::lock_guard<std::mutex> lock(books.mutex);
  const int64_t index = TakeFreeSlot(books);
  if (index < 0) return index;
  Slot& slot = SlotAt(static_cast<uint32_t>(index));
  slot.owner = owner;
  slot.fd = fd;
  slot.name = {};
  slot.controlBytes = slot.at = 0;
  slot.bytes = static_cast<uint32_t>(bytes);
  memcpy(slot.frame, frame, bytes);
  int result = 0;
  if (domain == AF_PACKET) AddressFrame(slot, ifindex);
  else result = AddressDatagram(slot, ifindex);
  if (result < 0) {
    books.freeSlots.push_back(static_cast<uint32_t>(index));
    return result;
  }
  slot.state.store(kReady, std::memory_order_release);
  if (process.load() == 0) process.store(getpid());
  return static_cast<int64_t>((uint64_t{slot.generation} << kIndexBits) | static_cast<uint64_t>(index));
}

void DropLastFrame(uint64_t id) {
  const uint32_t index = id & ((1u << kIndexBits) - 1);
  Bookkeeping& books = Books();
  const std::lock_guard<std::mutex> lock(books.mutex);
  if (index >= chunkCount.load() * kChunkSlots) return;
  if (SlotAt(index).generation == id >> kIndexBits) FreeSlot(books, index);
}

void DropLastFramesOf(int fd) {
  if (fd < 0 || chunkCount.load(std::memory_order_acquire) == 0) return;
  Bookkeeping& books = Books();
  std::lock_guard<std::mutex> lock(books.mutex);
  ForEachSlot([&](uint32_t index, Slot& slot) {
    if (slot.state.load() != kFree && slot.fd == fd) FreeSlot(books, index);
  });
}

void EndLastFramesOf(const void* owner) {
  Bookkeeping& books = Books();
  std::unique_lock<std::mutex> lock(books.mutex);
  std::vector<Slot*> ready;
  ForEachSlot([&](uint32_t, Slot& slot) {
    const bool isOwn = slot.state.load() == kReady && slot.owner == owner;
    if (isOwn && process.load() == getpid() && Take(slot)) ready.push_back(&slot);
  });
  lock.unlock();
  int waits = kMaxWaits;
  for (Slot* slot : ready) {
    SendSlot(*slot, waits);
    slot->state.store(kSent, std::memory_order_release);
  }
  lock.lock();
  ForEachSlot([&](uint32_t index, Slot& slot) {
    if (slot.state.load() != kFree && slot.owner == owner) FreeSlot(books, index);
  });
}

void SendLastFramesAtSignals() {
  std::lock_guard<std::mutex> lock(Books().mutex);
  struct sigaction own{};
  own.sa_handler = OnSignal;
  own.sa_flags = SA_ONSTACK;
  sigfillset(&own.sa_mask);
  for (size_t i = 0; i < sizeof kSignals / sizeof *kSignals; i++) {
    struct sigaction now{};
    if (sigaction(kSignals[i], nullptr, &now) != 0 || now.sa_handler == OnSignal || !EndsProcess(now)) continue;
    before[i] = now;
    sigaction(kSignals[i], &own, nullptr);
  }
}

int OpenSendingPacketSocket() {
  const int fd = KernelSocket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK);
  return fd < 0 ? -errno : fd;
}
