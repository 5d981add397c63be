// An instance of the card as C on a memory, as WebAssembly.Instance is one of the card in V8. Any number of instances,
// of either kind, may use one memory: the card has no state outside of it.
#pragma once
#include "core/regions.h"
#include "core/turncard.h"
#include "w2c_card.h"

/// The imports of the card.
struct w2c_env {
  wasm_rt_shared_memory_t memory;
  RegionAccess* regions;
};

class CardInstance final : public TurnCard {
 public:
  /// @param memory, regions live as long as the instance
  CardInstance(uint8_t* memory, uint64_t bytes, RegionAccess& regions);
  CardInstance(const CardInstance&) = delete;
  CardInstance& operator=(const CardInstance&) = delete;

  /// The first argument of the functions in w2c_card.h. Call them within CatchTrap.
  w2c_card* Card() { return &card_; }

  const char* Try(void (*run)(void* context), void* context) override;
  uint32_t Rx(double now, uint32_t limit) override { return w2c_card_rx(&card_, now, limit); }
  void Expire(double now) override { w2c_card_expire(&card_, now); }
  uint32_t Tx(double now, uint32_t limit) override { return w2c_card_tx(&card_, now, limit); }
  double NextDeadline() override { return w2c_card_nextDeadline(&card_); }
  bool IsDoorbellRung() override { return w2c_card_isDoorbellRung(&card_) != 0; }
  bool HasEvents() override { return w2c_card_eventPeek(&card_) != 0; }

 private:
  w2c_env imports_;
  w2c_card card_;
};
