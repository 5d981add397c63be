// Keeps signals of the process away from threads that the program knows nothing of.
#pragma once
#include <csignal>

/// While it lives, the calling thread has all signals blocked, but for those of a fault of its own, and so have threads
/// that it makes: the process's own threads handle them.
/// sigprocmask is for the calling thread on Linux. glibc has moved pthread_sigmask to another file.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&all, fault);
    sigprocmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};
