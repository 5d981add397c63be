// The card, as a turn needs it. Core does not know what it is; native/card has the one there is.
#pragma once
#include <cstdint>

class TurnCard {
 public:
  /// Runs a function that calls the card. A call that traps does not return: the function ends there, and frames
  /// between the two are left without destructors. @returns null, or why the card has trapped; it is not called again
  virtual const char* Try(void (*run)(void* context), void* context) = 0;

  // As the exports of assembly/index.ts and assembly/posting.ts. Times are nanoseconds of the device's clock.
  virtual uint32_t Rx(double now, uint32_t limit) = 0;
  virtual void Expire(double now) = 0;
  virtual uint32_t Tx(double now, uint32_t limit) = 0;
  virtual double NextDeadline() = 0;
  virtual bool IsDoorbellRung() = 0;
  virtual bool HasEvents() = 0;

 protected:
  ~TurnCard() = default;
};
