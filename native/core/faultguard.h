// Accesses of a program's memory that may be gone: it was unmapped, its rights were taken, or its file is shorter. Such
// an access ends by itself, and not the process, from CatchFaults on.
//
// Any thread, at any time.
#pragma once
#include <csetjmp>
#include <csignal>

/// Handles SIGSEGV and SIGBUS of guarded accesses. All others have the handlers from before. A second call does
/// nothing.
/// @returns 0 or an errno
int CatchFaults();

/// Whether a signal is one of those, and CatchFaults was called.
bool CatchesFaultsOf(int signal);
/// As sigaction, for a signal of which faults are caught: the action that all other faults have.
void SetFaultAction(int signal, const struct sigaction* action, struct sigaction* before);

namespace faultguard {

/// Whether faults are caught.
extern bool isActive;
/// The way out of the thread's guarded access.
extern thread_local sigjmp_buf* wayOut;

}  // namespace faultguard

/// Calls a function that accesses memory, and whose frames need no destructors.
/// @returns false if it has met memory that is not there; it may have done a part
template <typename Access>
bool TryAccess(Access access) {
  if (faultguard::isActive) {
    sigjmp_buf here;
    if (sigsetjmp(here, 0) != 0) {
      faultguard::wayOut = nullptr;
      return false;
    }
    faultguard::wayOut = &here;
    access();
    faultguard::wayOut = nullptr;
  } else {
    access();
  }
  return true;
}
