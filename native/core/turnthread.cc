#include "turnthread.h"

#include <sys/prctl.h>
#include <algorithm>

#include "blockedsignals.h"
#include "clock.h"
#include "eventfd.h"

namespace {

// As in src/device/turns.ts and src/device/cardworker.ts.
/// Maximum number of frames that one turn moves in each direction.
constexpr uint32_t kTurnFrames = 128;
/// Maximum number of turns to send what is ready at the end. Received frames may keep turns busy without end.
constexpr int kMaxClosingTurns = 64;
/// Delay before frames that the kernel has not taken are offered again (ns).
constexpr double kSendRetry = 100'000;
/// Maximum duration of a sleep (ns).
constexpr double kMaxSleep = kSecond / 2.;
/// Time for which this thread takes all turns after the application was busy, at first and at most (ns).
constexpr double kMinOwnTime = 1'000'000, kMaxOwnTime = kSecond / 10.;
/// Bytes of the thread's stack: musl's default is small.
constexpr size_t kStackBytes = 1 << 20;

}  // namespace

TurnThread::TurnThread(TurnCard& card, const Plan& plan)
    : card_(card), plan_(plan), lock_(plan.words), socket_(plan.socket), spin_(plan.spin) {
  tx_.Attach(plan.memory, plan.tx);
}

int TurnThread::Start() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  // a new thread has the mask of the one that makes it
  const BlockedSignals blocked;
  const auto run = [](void* self) -> void* {
    static_cast<TurnThread*>(self)->Run();
    return nullptr;
  };
  const int refused = pthread_create(&thread_, &attributes, run, this);
  pthread_attr_destroy(&attributes);
  isStarted_ = refused == 0;
  return -refused;
}

void TurnThread::Join() {
  if (!isStarted_) return;
  isStarted_ = false;
  lock_.RequestStop();
  SignalEventfd(plan_.wakeFd);
  pthread_join(thread_, nullptr);
}

void TurnThread::Abandon() {
  if (isStarted_) lock_.AbandonCall();
  Join();
}

void TurnThread::Run() {
  prctl(PR_SET_NAME, "wasm-roce card");
  const auto all = [](void* self) {
    static_cast<TurnThread*>(self)->TakeTurns();
    static_cast<TurnThread*>(self)->Finish();
  };
  if (const char* reason = card_.Try(all, this)) {
    lock_.MarkFailed(reason);
    NotifyApplication();
  } else {
    lock_.MarkStopped();
  }
}

void TurnThread::TakeTurns() {
  double busyAt = Now(), sleptAt = 0;
  while (!lock_.IsStopping()) {
    lock_.BeginTurn();
    if (lock_.HasFailed()) {
      lock_.EndTurn();
      break;
    }
    lock_.ClearRequest();
    const double now = Now();
    const uint32_t moved = Turn(now);
    const double deadline = moved > 0 ? 0 : Deadline(now);
    lock_.EndTurn();
    NotifyOfEvents();
    if (wasLeft_ && moved > 0) Own(now);
    wasLeft_ = false;
    if (moved > 0) {
      if (sleptAt != 0) spin_.RecordSleep(static_cast<int64_t>(now - sleptAt));
      sleptAt = 0;
      busyAt = now;
    } else if (now - busyAt >= static_cast<double>(spin_.Duration())) {
      sleptAt = now;
      Sleep(deadline);
    }
  }
}

void TurnThread::Finish() {
  // a turn of the application's thread
  if (lock_.HasFailed()) return;
  lock_.BeginTurn();
  for (int turns = 0; turns < kMaxClosingTurns && Turn(Now()) > 0; turns++) {
  }
  lock_.EndTurn();
  NotifyOfEvents();
}

uint32_t TurnThread::Turn(double now) {
  uint32_t moved = socket_.Receive();
  moved += card_.Rx(now, kTurnFrames);
  card_.Expire(now);
  // The application wakes up while this thread sends: a system call takes longer than the turn.
  NotifyOfEvents();
  moved += card_.Tx(now, kTurnFrames);
  if (HasFramesToSend()) Send(moved);
  return moved;
}

void TurnThread::Send(uint32_t& moved) {
  const int32_t sent = socket_.Send();
  moved += static_cast<uint32_t>(sent < 0 ? ~sent : sent);
  if (sent >= 0) return;
  __atomic_store_n(plan_.gsoRefused, 1, __ATOMIC_SEQ_CST);
  NotifyApplication();
}

double TurnThread::Deadline(double now) {
  const double deadline = card_.NextDeadline();
  if (!HasFramesToSend()) return deadline;
  return deadline == 0 ? now + kSendRetry : std::min(deadline, now + kSendRetry);
}

void TurnThread::Sleep(double deadline) {
  const double now = Now();
  const double duration = deadline == 0 ? kMaxSleep : std::min(deadline - now, kMaxSleep);
  lock_.SetSleepEnd(now + duration);
  lock_.BeginSleep();
  // A doorbell or request from now on wakes this thread; an earlier one is seen here.
  if (duration > 0 && !card_.IsDoorbellRung() && !lock_.HasRequest()) {
    const WaitEnd end = WaitForEventfd(plan_.wakeFd, plan_.socketFd, static_cast<int64_t>(duration));
    if (end == WaitEnd::kOther && lock_.IsAppWatching() && Now() >= ownsUntil_) LeaveToApplication();
  }
  lock_.EndSleep();
}

void TurnThread::LeaveToApplication() {
  int32_t turns;
  do {
    turns = lock_.AppTurns();
    if (WaitForEventfd(plan_.wakeFd, -1, plan_.appTurnTime) == WaitEnd::kSignal) return;
  } while (lock_.AppTurns() != turns && lock_.IsAppWatching());
  wasLeft_ = true;
}

void TurnThread::Own(double now) {
  // One that was busy once may be held up by chance; one that is busy again and again works.
  const bool isAgain = now - ownsUntil_ < ownTime_;
  ownTime_ = isAgain ? std::min(2 * ownTime_, kMaxOwnTime) : kMinOwnTime;
  ownsUntil_ = now + ownTime_;
}

void TurnThread::NotifyOfEvents() {
  if (card_.HasEvents()) NotifyApplication();
}

void TurnThread::NotifyApplication() {
  if (lock_.ClaimNotice()) SignalEventfd(plan_.noticeFd);
}

double TurnThread::Now() const { return static_cast<double>(MonotonicTime() - plan_.clockOrigin); }
