// The adapter of a process: a card as C on memory of its own, the link below it, and the thread that takes its turns
// when no call of the program does.
//
// Threads: a program may call verbs in any thread. Whoever uses the card holds the adapter's lock: `Adapter::Lock`.
// A thread that polls a completion queue takes turns itself, and so does one that waits inside a call for an event. The
// engine, a thread of its own, takes them when there is neither: a program that polls its memory, waits for a file
// descriptor of the adapter's, or computes.
#pragma once
#include <pthread.h>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "broker.h"
#include "capture.h"
#include "card/instance.h"
#include "card/trap.h"
#include "core/clock.h"
#include "core/frames.h"
#include "core/regions.h"
#include "core/udpsockets.h"
#include "events.h"
#include "gate.h"
#include "groups.h"
#include "keytable.h"
#include "port.h"
#include "sourceports.h"

class Adapter {
 public:
  /// A thread that is cancelled does not leave with the lock: the turns make system calls where it could be.
  class Lock {
   public:
    explicit Lock(std::mutex& mutex) : mutex_(mutex) {
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
      mutex_.lock();
    }
    ~Lock() {
      mutex_.unlock();
      pthread_setcancelstate(before_, nullptr);
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    std::mutex& mutex_;
    int before_ = PTHREAD_CANCEL_ENABLE;
  };

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
  Groups& TheGroups() { return groups_; }

  /// Returns the UDP source port of packets from an entry of the GID table. @param remoteQpn 0 = not known
  uint16_t SourcePortTo(uint32_t gidIndex, uint32_t remoteQpn);

  /// Sends what was posted, and has the engine keep new deadlines.
  void Posted();
  /// A thread polls a completion queue: takes a turn if the queue is empty, or if the last turn is long ago.
  void Poll(bool isEmpty);
  /// The program will wait for an event, perhaps without a call of the adapter.
  void ExpectsEvents() { pausedAt_ = MonotonicTime(); }
  /// The sockets receive what is sent to a multicast GID from now on. @returns 0 or an errno
  int JoinGroup(const uint8_t gid[16]);
  void LeaveGroup(const uint8_t gid[16]);
  /// Sends what is ready, before an object or the program ends.
  void Flush();

  // ---- The caller does not hold the lock.

  /// Finds the rules of faults of the program's that have hit no packet. @returns false if the broker does not say
  bool FindIdleRules(std::vector<std::string>& rules);
  /// Opens a file of rdma_cm, by the broker. @param commands, events streams, which the caller owns then
  /// @returns 0 or an errno; ENODEV without a broker, after a line on stderr
  int OpenRdmaCm(int& commands, int& events);

  /// Waits until a file descriptor can be read, and takes turns meanwhile unless another thread does so. May return
  /// early. A cancellation point, as read is. @returns 0, or EINTR after a signal for which read would not go on
  int Wait(int fd);

 private:
  explicit Adapter(const Port& port);
  ~Adapter() = default;

  static Adapter* Open();
  bool Start();
  bool OpenSockets();
  int OpenSocket(const Gid& gid, const sockaddr_in6& address);
  bool OpenCard();
  void TellAddresses();
  void SetLink();
  FrameLayout Layout();
  RingLayout LayoutOf(uint32_t ring) const;
  uint32_t Turn(bool receives);
  int32_t Send();
  void DispatchEvents();
  void DropLostMemory();
  void KeepBroker();
  bool SetFaults();
  void HeedBroker();
  void ShowHost(const Broker::Wishes& wishes);
  void SetGate(std::unique_ptr<Gate> gate);
  uint32_t ReceiveByGate(double now);
  uint32_t SendByGate(double now);
  bool PassOn(const Gate::Frame& frame, double now);
  double Deadline();
  void KeepDeadline();
  void WakeEngine();
  void WatchSockets();
  int64_t Called();
  bool IsPolled(int64_t now) const;
  bool Lead();
  void EndLead();
  static void EndCancelledLead(void* adapter);
  void RunEngine();
  void TakeEngineTurn();
  /// Sleeps without the lock.
  void SleepEngine();
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
  Broker broker_;
  SourcePorts sourcePorts_;
  /// Null: the program's frames are not captured.
  std::unique_ptr<Capture> capture_;
  /// Null: no rule of faults is in force.
  std::unique_ptr<Gate> gate_;
  /// The slot from which the card receives the frames that have passed the gate. 0: there was none yet.
  uint32_t gateSlot_ = 0;
  Events events_;
  KeyTable keys_;
  Groups groups_;
  Ring tx_;
  uint32_t scratch_ = 0;
  bool usesGso_ = false;
  bool hasFailed_ = false;

  pthread_t engine_{};
  int wakeFd_ = -1;
  /// Expires when the engine has to see whether anybody still takes the turns.
  int lookFd_ = -1;
  bool isLookSet_ = false;
  /// wakeFd_, lookFd_, the broker's, the gate's, and the sockets; and those that the engine waits for in its sleep.
  std::vector<struct pollfd> waits_, engineWaits_;
  /// The end of the last call that took turns, and the last pause between two of them (ns).
  int64_t calledAt_ = 0, pausedAt_ = 0;
  /// The last look at the sockets (ns).
  int64_t lookedAt_ = 0;
  /// Whether a thread that waits for an event takes the turns.
  bool isLed_ = false;
  /// The engine sleeps until this time (ns), and with or without a look at the sockets.
  int64_t sleepsUntil_ = 0;
  bool isAsleep_ = false, sleepWatches_ = false;
};
