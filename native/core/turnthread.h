// The card's thread in mode `worker`, as a thread without JavaScript: the counterpart of src/device/cardworker.ts. It
// takes turns as long as there is work, polls for more work for a while, and then sleeps until a frame, the application
// or a deadline wakes it.
//
// A frame may also wake the application's thread, when it waits in its event loop for what the frame brings. That one
// then takes the turn: the frame needs one thread to wake up in place of two, one after the other. This thread looks
// now and then whether it still does, and takes the turns when the application is busy.
//
// The application's thread calls what is public.
#pragma once
#include <pthread.h>
#include <cstdint>

#include "frames.h"
#include "sharedsocket.h"
#include "spin.h"
#include "turncard.h"
#include "turnlock.h"

class TurnThread {
 public:
  struct Plan {
    /// The card's memory and its transmit ring.
    uint8_t* memory;
    RingLayout tx;
    /// The words of the TurnLock.
    int32_t* words;
    /// The number of the socket (SharedSocket::Transfer), and a file descriptor that is readable when it has frames.
    uint32_t socket;
    int socketFd;
    /// Set to 1 when the kernel has refused a GSO burst.
    int32_t* gsoRefused;
    /// The eventfds that wake this thread, and the application's.
    int wakeFd, noticeFd;
    /// Maximum time to poll for work before a sleep (ns), or Spin::kForever.
    int64_t spin;
    /// CLOCK_MONOTONIC when the device's clock is 0 (ns).
    int64_t clockOrigin;
    /// Time in which the application's thread takes a turn after a frame, unless it is busy (ns).
    int64_t appTurnTime = 200'000;
  };

  /// @param card stays as long as this object, as does what the plan points at
  TurnThread(TurnCard& card, const Plan& plan);
  /// The thread must have been joined, or not started.
  ~TurnThread() = default;
  TurnThread(const TurnThread&) = delete;
  TurnThread& operator=(const TurnThread&) = delete;

  /// @returns 0 or -errno
  int Start();
  /// Makes the thread take its last turns and stop, and waits for its end. Does nothing if it does not run.
  void Join();
  /// As Join, for an application's thread that ends, perhaps in the middle of a call.
  void Abandon();

 private:
  void Run();
  void TakeTurns();
  void Finish();
  uint32_t Turn(double now);
  void Send(uint32_t& moved);
  double Deadline(double now);
  void Sleep(double deadline);
  void LeaveToApplication();
  void Own(double now);
  void NotifyOfEvents();
  void NotifyApplication();
  bool HasFramesToSend() const { return tx_.Producer() != tx_.Consumer(); }
  /// The device's clock.
  double Now() const;

  TurnCard& card_;
  const Plan plan_;
  TurnLock lock_;
  AdoptedSocket socket_;
  Ring tx_;
  Spin spin_;
  /// Until when this thread takes the turns although the application's thread watches (device's clock), and for how
  /// long (ns).
  double ownsUntil_ = 0, ownTime_ = 0;
  /// The application's thread has taken no turn after frames for some time.
  bool wasLeft_ = false;
  pthread_t thread_{};
  bool isStarted_ = false;
};
