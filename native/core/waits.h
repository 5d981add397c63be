// Waits for file descriptors. A socket that costs a system call to look at need not be looked at before a wait for it
// has ended.
#pragma once
#include <atomic>
#include <cstdint>

/// Number of waits of this process that have ended. Whoever waits for a socket counts it, in any thread.
inline std::atomic<uint32_t> endedWaits{0};
