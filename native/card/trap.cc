#include "trap.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>

namespace {

/// The innermost CatchTrap of the thread.
thread_local jmp_buf* caught = nullptr;

}  // namespace

int CatchTrap(void (*run)(void* context), void* context) {
  jmp_buf here;
  jmp_buf* const outer = caught;
  caught = &here;
  const int reason = setjmp(here);
  if (reason == 0) run(context);
  caught = outer;
  return reason;
}

extern "C" void CardTrapped(CardTrap reason) {
  if (caught != nullptr) longjmp(*caught, reason);
  fprintf(stderr, "wasm-roce: the card has trapped: %s\n", TrapText(reason));
  abort();
}

const char* TrapText(int reason) {
  switch (reason) {
    case TRAP_OOB:
      return "memory access out of bounds";
    case TRAP_UNALIGNED:
      return "operation does not support unaligned accesses";
    case TRAP_UNREACHABLE:
      return "unreachable";
    case TRAP_DIV_BY_ZERO:
      return "divide by zero";
    default:
      return "no trap";
  }
}
