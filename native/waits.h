// Waits for file descriptors. A socket that costs a system call to look at need not be looked at before a wait for it
// has ended.
#pragma once
#include <atomic>
#include <cstdint>

/// Number of waits of this process that have ended, by a Poller or by eventfdWait.
inline std::atomic<uint32_t> endedWaits{0};
