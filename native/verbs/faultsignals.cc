// The program's handlers of SIGSEGV and SIGBUS. They get the faults that are not of registered memory, whether they are
// set before the adapter catches those or after.
#include <csignal>

#include "abi.h"
#include "core/faultguard.h"
#include "next.h"

VERBS_API int sigaction(int signal, const struct sigaction* action, struct sigaction* before) noexcept {
  static const auto next = Next<decltype(&sigaction)>("sigaction");
  if (!CatchesFaultsOf(signal)) return next(signal, action, before);
  SetFaultAction(signal, action, before);
  return 0;
}

VERBS_API sighandler_t signal(int signal, sighandler_t handler) noexcept {
  static const auto next = Next<decltype(&::signal)>("signal");
  if (!CatchesFaultsOf(signal)) return next(signal, handler);
  struct sigaction action {}, before;
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  SetFaultAction(signal, &action, &before);
  return before.sa_handler;
}
