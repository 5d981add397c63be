#include "faultguard.h"

#include <atomic>
#include <cerrno>
#include <mutex>

namespace faultguard {

bool isActive = false;
thread_local sigjmp_buf* wayOut = nullptr;

}  // namespace faultguard

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS};

/// The action that other faults of a signal have. A handler reads it at any time, so each change takes the next place.
class OtherAction {
 public:
  const struct sigaction& Get() const { return places_[now_.load(std::memory_order_acquire) % kPlaces]; }
  void Set(const struct sigaction& action) {
    const unsigned next = now_.load(std::memory_order_relaxed) + 1;
    places_[next % kPlaces] = action;
    now_.store(next, std::memory_order_release);
  }

 private:
  static constexpr unsigned kPlaces = 16;
  struct sigaction places_[kPlaces];
  std::atomic<unsigned> now_{0};
};

OtherAction ofSegv, ofBus;

OtherAction& Other(int signal) { return signal == SIGBUS ? ofBus : ofSegv; }

std::mutex& ChangeMutex() {
  // Never destroyed: threads may outlive main.
  static auto* mutex = new std::mutex;
  return *mutex;
}

void OnFault(int signal, siginfo_t* info, void* context) {
  // a positive code is the kernel's, of a fault: not of a signal that somebody has sent
  if (faultguard::wayOut != nullptr && info->si_code > 0) siglongjmp(*faultguard::wayOut, 1);
  const struct sigaction& other = Other(signal).Get();
  if (other.sa_flags & SA_SIGINFO) return other.sa_sigaction(signal, info, context);
  if (other.sa_handler != SIG_DFL && other.sa_handler != SIG_IGN) return other.sa_handler(signal);
  const bool isSent = info->si_code <= 0;
  if (isSent && other.sa_handler == SIG_IGN) return;
  // the process ends: the access is repeated, and faults without a handler; a signal that was sent is sent again.
  // `sigaction` may be the one of the library for C programs, which leaves signals that are caught to SetFaultAction
  faultguard::isActive = false;
  struct sigaction none {};
  none.sa_handler = SIG_DFL;
  sigaction(signal, &none, nullptr);
  if (isSent) raise(signal);
}

}  // namespace

int CatchFaults() {
  const std::lock_guard<std::mutex> lock(ChangeMutex());
  if (faultguard::isActive) return 0;
  struct sigaction action {};
  action.sa_sigaction = OnFault;
  // the handler does not return, so its signal must not stay blocked
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  for (const int signal : kSignals) {
    struct sigaction before;
    if (sigaction(signal, nullptr, &before) != 0) return errno;
    Other(signal).Set(before);
    if (sigaction(signal, &action, nullptr) != 0) return errno;
  }
  faultguard::isActive = true;
  return 0;
}

bool CatchesFaultsOf(int signal) { return faultguard::isActive && (signal == SIGSEGV || signal == SIGBUS); }

void SetFaultAction(int signal, const struct sigaction* action, struct sigaction* before) {
  const std::lock_guard<std::mutex> lock(ChangeMutex());
  const struct sigaction old = Other(signal).Get();
  if (action != nullptr) Other(signal).Set(*action);
  if (before != nullptr) *before = old;
}
