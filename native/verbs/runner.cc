// The process of `wasm-roce run`: its program does not outlive it, whatever ends it.
#include <sys/prctl.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>

#include "settings.h"

namespace {

[[gnu::constructor]] void EndWithRunner() {
  const char* runner = Setting("WASM_ROCE_RUNNER");
  // programs that the program starts have it as their parent, and may be left alone on purpose
  if (runner == nullptr || atoi(runner) != getppid()) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // it may have ended before that
  if (atoi(runner) != getppid()) raise(SIGTERM);
}

}  // namespace
