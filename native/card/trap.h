// Traps of the card as C. WebAssembly ends the call that traps, and so does this: by longjmp, over frames of C alone.
#pragma once
#include "types.h"

/// Calls a function that calls the card, which may be done in any thread. Frames between the two need no destructors.
/// @returns 0, or the reason for a trap, after which nothing more of `run` is done
int CatchTrap(void (*run)(void* context), void* context);

/// As CatchTrap, for a callable.
template <typename Run>
int CatchTrap(Run& run) {
  return CatchTrap([](void* context) { (*static_cast<Run*>(context))(); }, &run);
}

/// Returns the text of a reason, as V8 words it.
const char* TrapText(int reason);
