#include "turnlock.h"

#include <algorithm>
#include <cstring>

#include "clock.h"
#include "futex.h"

namespace {

/// Reads of the other thread's word before this one sleeps. Calls are short.
constexpr int kSpinLimit = 2000;
/// Time after which a sleeping thread reads the word again.
constexpr int64_t kCallPoll = kSecond / 10;

}  // namespace

void TurnLock::RequestStop() {
  int32_t expected = kRunning;
  __atomic_compare_exchange_n(words_ + kState, &expected, kStopping, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void TurnLock::AbandonCall() {
  if (Load(kInCall) == 0) return;
  SetFailure("the application's thread was ended within a call of the card");
  Store(kState, kFailed);
  Release(kInCall);
}

void TurnLock::BeginTurn() {
  for (;;) {
    Store(kInTurn, 1);
    if (Load(kInCall) == 0) return;
    Release(kInTurn);
    WaitForCall();
  }
}

void TurnLock::SetSleepEnd(double at) {
  int64_t bits;
  memcpy(&bits, &at, sizeof bits);
  __atomic_store_n(reinterpret_cast<int64_t*>(words_ + kSleepEnd), bits, __ATOMIC_SEQ_CST);
}

void TurnLock::WaitForCall() {
  for (int i = 0; i < kSpinLimit; i++)
    if (Load(kInCall) == 0) return;
  int32_t expected = 1;
  __atomic_compare_exchange_n(words_ + kInCall, &expected, kAwaited, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  if (expected != 0) FutexWait(words_ + kInCall, kAwaited, kCallPoll);
}

void TurnLock::Release(Word word) {
  if (Exchange(word, 0) == kAwaited) FutexWake(words_ + word);
}

void TurnLock::MarkStopped() {
  if (!HasFailed()) End(kStopped);
}

void TurnLock::MarkFailed(const char* reason) {
  SetFailure(reason);
  End(kFailed);
}

void TurnLock::SetFailure(const char* reason) {
  const auto bytes = std::min<size_t>(strlen(reason), kMaxFailureBytes);
  memcpy(reinterpret_cast<char*>(words_) + kWordBytes, reason, bytes);
  words_[kFailureBytes] = static_cast<int32_t>(bytes);
}

void TurnLock::End(State state) {
  Store(kState, state);
  FutexWake(words_ + kState);
  EndTurn();
}
