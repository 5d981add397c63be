// The adapter of a process: a card as C on memory of its own, the link below it, and the thread that takes its turns
// when no call of the program does.
//
// Threads: a program may call verbs in any thread. Whoever uses the card holds the adapter's lock: `Adapter::Lock`.
// A thread that polls takes turns itself. The engine, a thread of its own, takes them when none has polled for a while,
// and when a program waits for an event.
#pragma once
#include <pthread.h>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "card/instance.h"
#include "card/trap.h"
#include "core/frames.h"
#include "core/regions.h"
#include "core/udpsockets.h"
#include "events.h"
#include "keytable.h"
#include "port.h"

class Adapter {
 public:
  using Lock = std::unique_lock<std::mutex>;

  /// Returns the adapter of the process. The first call opens it.
  /// @returns null and errno if it cannot be opened; a line on stderr says why, once
  static Adapter* Get();
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  [[nodiscard]] Lock Hold() { return Lock(mutex_); }

  // ---- The caller holds the lock from here on.

  /// Calls the card: `run(card)`. Its frames need no destructors, because a trap of the card leaves them.
  /// @returns false if the card has failed, now or before: no more calls reach it
  template <typename Run>
  bool Call(Run run) {
    if (hasFailed_) return false;
    w2c_card* const card = card_.Card();
    auto call = [&] { run(card); };
    const int trap = CatchTrap(call);
    if (trap != 0) Fail(TrapText(trap));
    return trap == 0;
  }
  /// Whether the card has trapped, or this process is a child that has inherited the adapter.
  bool HasFailed() const { return hasFailed_; }

  /// The card's memory at an offset that the card has returned.
  uint8_t* At(uint32_t offset) const { return memory_ + offset; }
  template <typename Value>
  Value Read(uint32_t offset) const {
    Value value;
    memcpy(&value, memory_ + offset, sizeof value);
    return value;
  }
  template <typename Value>
  void Write(uint32_t offset, Value value) {
    memcpy(memory_ + offset, &value, sizeof value);
  }
  /// The 4 KiB through which addresses and attributes pass.
  uint32_t Scratch() const { return scratch_; }

  Regions& MemoryRegions() { return *regions_; }
  const Port& ThePort() const { return port_; }
  Events& TheEvents() { return events_; }
  KeyTable& Keys() { return keys_; }

  /// Sends what was posted, and has the engine keep new deadlines.
  void Posted();
  /// Takes a turn for a thread that polls. @returns whether anything has moved
  bool Poll();
  /// From now on the program waits for events: the engine looks at the sockets.
  void AwaitEvents();
  /// Sends what is ready, before an object or the program ends.
  void Flush();

 private:
  explicit Adapter(const Port& port);
  ~Adapter() = default;

  static Adapter* Open();
  bool Start();
  bool OpenSockets();
  bool OpenCard();
  void SetLink();
  FrameLayout Layout();
  RingLayout LayoutOf(uint32_t ring) const;
  uint32_t Turn(bool receives);
  void DispatchEvents();
  double Deadline();
  void KeepDeadline();
  void WakeEngine();
  void RunEngine();
  /// Sleeps without the lock.
  void SleepEngine(Lock& lock);
  void Fail(const char* reason);
  static void BeforeFork();
  static void AfterForkInParent();
  static void AfterForkInChild();

  std::mutex mutex_;
  uint8_t* const memory_;
  std::shared_ptr<Regions> regions_;
  CardInstance card_;
  Port port_;
  UdpSockets sockets_;
  Events events_;
  KeyTable keys_;
  Ring tx_;
  uint32_t scratch_ = 0;
  bool usesGso_ = false;
  bool hasFailed_ = false;

  pthread_t engine_{};
  int wakeFd_ = -1;
  std::vector<struct pollfd> waits_;
  /// The last turn of a thread that polls (ns).
  int64_t polledAt_ = 0;
  /// The engine sleeps until this time (ns), and with or without a look at the sockets.
  int64_t sleepsUntil_ = 0;
  bool isAsleep_ = false, sleepWatches_ = false;
};
