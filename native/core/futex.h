// Futexes (futex(2)): one thread sleeps until another one of the process has changed a word of memory that both share.
#pragma once
#include <cstdint>

/// Blocks as long as the word has the value, for at most that time. May return earlier: read the word again.
void FutexWait(const int32_t* word, int32_t value, int64_t nanoseconds);
/// Wakes a thread that waits for a change of the word.
void FutexWake(const int32_t* word);
