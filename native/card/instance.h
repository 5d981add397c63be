// An instance of the card as C on a memory, as WebAssembly.Instance is one of the card in V8. Any number of instances,
// of either kind, may use one memory: the card has no state outside of it.
#pragma once
#include "w2c_card.h"

class CardInstance {
 public:
  /// @param memory stays where it is as long as the instance
  CardInstance(uint8_t* memory, uint64_t bytes);
  CardInstance(const CardInstance&) = delete;
  CardInstance& operator=(const CardInstance&) = delete;

  /// The first argument of the functions in w2c_card.h. Call them within CatchTrap.
  w2c_card* Card() { return &card_; }

 private:
  wasm_rt_shared_memory_t memory_;
  w2c_card card_;
};
