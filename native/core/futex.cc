#include "futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

void FutexWait(const int32_t* word, int32_t value, int64_t nanoseconds) {
  const timespec limit = TimeSpec(nanoseconds);
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &limit, nullptr, 0);
}

void FutexWake(const int32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }
