#include "instance.h"

#include "trap.h"

extern "C" wasm_rt_shared_memory_t* w2c_env_memory(w2c_env* env) {
  return reinterpret_cast<wasm_rt_shared_memory_t*>(env);
}

CardInstance::CardInstance(uint8_t* memory, uint64_t bytes) : memory_{memory, bytes} {
  wasm2c_card_instantiate(&card_, reinterpret_cast<w2c_env*>(&memory_));
}

const char* CardInstance::Try(void (*run)(void* context), void* context) {
  const int reason = CatchTrap(run, context);
  return reason == 0 ? nullptr : TrapText(reason);
}
