// The state that the two threads of a device in mode `worker` share beside the card's memory. src/device/turnlock.ts
// has the other side, and says more about each word; test/device/turnlock.test.ts compares the two.
#pragma once
#include <cstdint>

class TurnLock {
 public:
  /// WordIndex of turnlock.ts.
  enum Word {
    kInTurn = 0,
    kInCall = 16,
    kAsleep = 32,
    kTurnRequested = 48,
    kNotified = 64,
    kState = 80,
    kFailureBytes = 96,
    kFaultsRequested = 112,
    kAppWatching = 128,
    kAppTurns = 144,
    kSleepEnd = 160,
  };
  /// WorkerState of turnlock.ts.
  enum State { kRunning = 0, kStopping = 1, kStopped = 2, kFailed = 3 };
  /// kInTurn and kInCall: the other thread sleeps until the end. AWAITED of turnlock.ts.
  static constexpr int32_t kAwaited = 2;
  /// WORD_BYTES and MAX_FAILURE_BYTES of turnlock.ts.
  static constexpr uint32_t kWordBytes = 1024, kMaxFailureBytes = 1024;

  /// @param words of TurnLock.shared. They stay where they are as long as this object.
  explicit TurnLock(int32_t* words) : words_(words) {}

  // ---- Called by the application's thread.

  /// Requests that the card's thread stops. It must be woken then.
  void RequestStop();
  /// Called when that thread has ended, and calls nothing any more. A call that it has not finished may have left the
  /// card half changed: no turn is taken any more then.
  void AbandonCall();

  // ---- Called by the card's thread.

  /// Begins a turn. Waits until the application's thread is in no call.
  void BeginTurn();
  void EndTurn() { Release(kInTurn); }
  /// Clears the request for a turn. Call it at the start of the turn that serves it.
  void ClearRequest() { Store(kTurnRequested, 0); }
  /// Announces a sleep: requests from now on wake the thread. Check HasRequest for earlier ones before sleeping.
  void BeginSleep() { Store(kAsleep, 1); }
  /// Announces until when the thread sleeps at most (device's clock). Call it before BeginSleep.
  void SetSleepEnd(double at);
  void EndSleep() { Store(kAsleep, 0); }
  bool HasRequest() const { return Load(kTurnRequested) != 0 || IsStopping(); }
  bool IsStopping() const { return Load(kState) != kRunning; }
  bool HasFailed() const { return Load(kState) == kFailed; }
  /// Claims the notification of events. @returns true, until the application looks: the caller must wake that thread
  bool ClaimNotice() { return Load(kNotified) == 0 && Exchange(kNotified, 1) == 0; }
  /// Whether frames wake the application's thread, too, which then takes the turn.
  bool IsAppWatching() const { return Load(kAppWatching) != 0; }
  /// Number of turns that the application's thread has taken, modulo 2^32.
  int32_t AppTurns() const { return Load(kAppTurns); }
  /// Reports that the thread takes no more turns, unless a turn has failed.
  void MarkStopped();
  /// As MarkStopped, because of an error, perhaps within a turn.
  void MarkFailed(const char* reason);

 private:
  int32_t Load(Word word) const { return __atomic_load_n(words_ + word, __ATOMIC_SEQ_CST); }
  void Store(Word word, int32_t value) { __atomic_store_n(words_ + word, value, __ATOMIC_SEQ_CST); }
  int32_t Exchange(Word word, int32_t value) { return __atomic_exchange_n(words_ + word, value, __ATOMIC_SEQ_CST); }
  void Release(Word word);
  void WaitForCall();
  void SetFailure(const char* reason);
  void End(State state);

  int32_t* const words_;
};
