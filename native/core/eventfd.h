// Eventfds (eventfd(2)), by which one thread wakes another one that sleeps in ppoll(2) or in an event loop. Any thread
// may use the file descriptor.
#pragma once
#include <cstdint>

/// @returns a file descriptor, or -errno
int OpenEventfd();
/// Makes it readable.
void SignalEventfd(int fd);
/// Resets it, so that it is not readable.
void ClearEventfd(int fd);
/// The end of a wait. The eventfd comes first if it is signalled, too.
enum class WaitEnd { kTimeout, kSignal, kOther };
/// Blocks until the eventfd is signalled, which is then cleared, the other file descriptor is readable, or the time is
/// over. @param other -1 = none
WaitEnd WaitForEventfd(int fd, int other, int64_t nanoseconds);
