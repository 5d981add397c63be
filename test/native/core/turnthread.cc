#include "core/turnthread.h"

#include <doctest/doctest.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <csetjmp>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/eventfd.h"

namespace {

/// Waits until a condition holds, at most for ten seconds.
template <typename Condition>
bool Eventually(Condition holds) {
  for (const int64_t end = MonotonicTime() + 10 * kSecond; MonotonicTime() < end;) {
    if (holds()) return true;
    std::this_thread::yield();
  }
  return false;
}

/// A socket that has as many frames as the test says.
class CountedFrames final : public SharedSocket {
 public:
  ~CountedFrames() { Revoke(); }
  std::atomic<uint32_t> waiting{0};

 private:
  int32_t SendFrames() override { return 0; }
  uint32_t ReceiveFrames() override { return waiting.exchange(0); }
};

/// A card that counts what it is asked, without locks: turns of two threads at once are an error to the sanitizer.
class CountingCard final : public TurnCard {
 public:
  const char* Try(void (*run)(void* context), void* context) override {
    if (setjmp(trapped_) != 0) return "a trap";
    run(context);
    return nullptr;
  }
  uint32_t Rx(double, uint32_t) override {
    turns++;
    if (traps) longjmp(trapped_, 1);
    return 0;
  }
  void Expire(double now) override {
    const double due = deadline;
    if (due == 0 || due > now) return;
    deadline = 0;
    expired++;
  }
  uint32_t Tx(double, uint32_t) override { return isRung.exchange(false) ? 1 : 0; }
  double NextDeadline() override { return deadline; }
  bool IsDoorbellRung() override { return isRung; }
  bool HasEvents() override { return hasEvents; }

  /// The lock protects it.
  uint32_t turns = 0;
  std::atomic<uint32_t> expired{0};
  std::atomic<double> deadline{0};
  std::atomic<bool> isRung{false}, hasEvents{false}, traps{false};

 private:
  jmp_buf trapped_;
};

/// A thread with its card and socket, and the application's side of the lock.
class Running {
 public:
  explicit Running(int64_t spin = 0, int64_t appTurnTime = 200'000)
      : wakeFd(OpenEventfd()), noticeFd(OpenEventfd()), socketFd(OpenEventfd()) {
    TurnThread::Plan plan{};
    plan.memory = memory_.data();
    plan.tx = {0, 4, 8, 0};
    plan.words = words.data();
    plan.socket = socket.Transfer();
    plan.socketFd = socketFd;
    plan.gsoRefused = &gsoRefused_;
    plan.wakeFd = wakeFd;
    plan.noticeFd = noticeFd;
    plan.spin = spin;
    plan.clockOrigin = origin_;
    plan.appTurnTime = appTurnTime;
    thread_ = std::make_unique<TurnThread>(card, plan);
    REQUIRE(thread_->Start() == 0);
  }
  ~Running() {
    Join();
    for (const int fd : {wakeFd, noticeFd, socketFd}) close(fd);
  }
  void Join() { thread_->Join(); }
  void Abandon() { thread_->Abandon(); }

  int32_t Load(int word) const { return __atomic_load_n(&words[static_cast<size_t>(word)], __ATOMIC_SEQ_CST); }
  void Store(int word, int32_t value) { __atomic_store_n(&words[static_cast<size_t>(word)], value, __ATOMIC_SEQ_CST); }
  bool IsAsleep() const { return Load(TurnLock::kAsleep) != 0; }
  void Wake() {
    int32_t expected = 1;
    if (__atomic_compare_exchange_n(&words[TurnLock::kAsleep], &expected, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      SignalEventfd(wakeFd);
  }
  /// Does something while no turn is taken. @returns its result
  template <typename Action>
  auto Call(Action action) {
    Store(TurnLock::kInCall, 1);
    while (Load(TurnLock::kInTurn) != 0) std::this_thread::yield();
    const auto result = action();
    // as the application's thread: a sleeping thread looks again by itself
    Store(TurnLock::kInCall, 0);
    return result;
  }
  uint32_t Turns() {
    return Call([this] { return card.turns; });
  }
  double Now() const { return static_cast<double>(MonotonicTime() - origin_); }
  bool WasNotified() const { return WaitForEventfd(noticeFd, -1, 0) == WaitEnd::kSignal; }

  std::vector<int32_t> words = std::vector<int32_t>((TurnLock::kWordBytes + TurnLock::kMaxFailureBytes) / 4);
  CountingCard card;
  CountedFrames socket;
  const int wakeFd, noticeFd, socketFd;

 private:
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(64);
  int32_t gsoRefused_ = 0;
  const int64_t origin_ = MonotonicTime();
  std::unique_ptr<TurnThread> thread_;
};

}  // namespace

TEST_CASE("the card's thread sleeps until a doorbell, a frame or a deadline wakes it") {
  Running running;
  REQUIRE(Eventually([&] { return running.IsAsleep(); }));
  running.card.isRung = true;
  running.Wake();
  CHECK(Eventually([&] { return !running.card.isRung && running.IsAsleep(); }));
  running.socket.waiting = 1;
  SignalEventfd(running.socketFd);
  CHECK(Eventually([&] { return running.socket.waiting == 0; }));
  ClearEventfd(running.socketFd);
  REQUIRE(Eventually([&] { return running.IsAsleep(); }));
  running.card.deadline = running.Now() + 2e6;
  running.Store(TurnLock::kTurnRequested, 1);
  running.Wake();
  CHECK(Eventually([&] { return running.card.expired == 1; }));
}

TEST_CASE("events notify the application once, until it has looked") {
  Running running;
  REQUIRE(Eventually([&] { return running.IsAsleep(); }));
  running.card.hasEvents = true;
  running.Store(TurnLock::kTurnRequested, 1);
  running.Wake();
  REQUIRE(Eventually([&] { return running.WasNotified(); }));
  running.Store(TurnLock::kTurnRequested, 1);
  running.Wake();
  REQUIRE(Eventually([&] { return running.Load(TurnLock::kTurnRequested) == 0 && running.IsAsleep(); }));
  CHECK(!running.WasNotified());
  running.Store(TurnLock::kNotified, 0);
  running.Store(TurnLock::kTurnRequested, 1);
  running.Wake();
  CHECK(Eventually([&] { return running.WasNotified(); }));
}

TEST_CASE("a thread that is stopped takes its last turns first") {
  Running running;
  REQUIRE(Eventually([&] { return running.IsAsleep(); }));
  running.card.isRung = true;
  running.Join();
  CHECK(!running.card.isRung);
  CHECK(running.Load(TurnLock::kState) == TurnLock::kStopped);
}

TEST_CASE("a trap ends the thread, and its reason is in the words") {
  Running running;
  running.card.traps = true;
  running.Wake();
  REQUIRE(Eventually([&] { return running.Load(TurnLock::kState) == TurnLock::kFailed; }));
  const auto* text = reinterpret_cast<const char*>(running.words.data()) + TurnLock::kWordBytes;
  CHECK(std::string(text, static_cast<size_t>(running.Load(TurnLock::kFailureBytes))) == "a trap");
  CHECK(running.Load(TurnLock::kInTurn) == 0);
  CHECK(Eventually([&] { return running.WasNotified(); }));
}

TEST_CASE("no turn is taken during a call, and calls are not kept waiting") {
  Running running(Spin::kForever);
  for (int call = 0; call < 20'000; call++) {
    const bool isAlone = running.Call([&] {
      const uint32_t before = running.card.turns;
      for (int i = 0; i < 20; i++) running.Load(TurnLock::kState);
      return running.card.turns == before;
    });
    if (!isAlone) FAIL("a turn was taken during call ", call);
  }
  const uint32_t turns = running.Turns();
  CHECK(Eventually([&] { return running.Turns() > turns; }));
}

TEST_CASE("frames are left to the application's thread as long as it takes turns") {
  Running running(0, kSecond / 2);
  REQUIRE(Eventually([&] { return running.IsAsleep(); }));
  running.Store(TurnLock::kAppWatching, 1);
  const uint32_t turns = running.Turns();
  running.socket.waiting = 1;
  SignalEventfd(running.socketFd);
  for (int turn = 0; turn < 5; turn++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    __atomic_add_fetch(&running.words[TurnLock::kAppTurns], 1, __ATOMIC_SEQ_CST);
  }
  CHECK(running.socket.waiting == 1);
  CHECK(running.Turns() == turns);
  // A request wakes the thread nevertheless.
  running.Wake();
  CHECK(Eventually([&] { return running.socket.waiting == 0; }));
}

TEST_CASE("the thread takes the turns of a busy application, although that one watches") {
  Running running;
  REQUIRE(Eventually([&] { return running.IsAsleep(); }));
  running.Store(TurnLock::kAppWatching, 1);
  SignalEventfd(running.socketFd);
  for (int frame = 0; frame < 20; frame++) {
    running.socket.waiting = 1;
    CHECK(Eventually([&] { return running.socket.waiting == 0; }));
  }
}

TEST_CASE("the time to poll is halved by long sleeps, and doubled by those that it would have saved") {
  Spin spin(64'000);
  const auto after = [&spin](int64_t slept) {
    spin.RecordSleep(slept);
    return spin.Duration();
  };
  CHECK(spin.Duration() == 64'000);
  for (const int64_t expected : {32'000, 16'000, 8000, 4000, 2000, 0, 0}) CHECK(after(1'000'000) == expected);
  for (const int64_t expected : {8000, 16'000, 32'000, 64'000, 64'000}) CHECK(after(32'000) == expected);
  for (const int64_t max : {int64_t{0}, Spin::kForever}) {
    Spin fixed(max);
    for (const int64_t slept : {1, 1'000'000, 1'000'000'000}) fixed.RecordSleep(slept);
    CHECK(fixed.Duration() == max);
  }
}

TEST_CASE("an application that ends in the middle of a call leaves a thread that ends, and takes no turn") {
  Running running;
  REQUIRE(Eventually([&] { return running.IsAsleep(); }));
  running.Store(TurnLock::kInCall, 1);
  const uint32_t before = running.card.turns;
  running.Wake();
  // it waits for the call now
  REQUIRE(Eventually([&] { return running.Load(TurnLock::kInCall) == TurnLock::kAwaited; }));
  running.Abandon();
  CHECK(running.card.turns == before);
  CHECK(running.Load(TurnLock::kState) == TurnLock::kFailed);
  CHECK(running.Load(TurnLock::kInTurn) == 0);
}

TEST_CASE("an application that ends outside of a call leaves a thread that takes its last turns") {
  Running running;
  running.card.isRung = true;
  running.Abandon();
  CHECK_FALSE(running.card.isRung);
  CHECK(running.Load(TurnLock::kState) == TurnLock::kStopped);
}
