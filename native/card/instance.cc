#include "instance.h"

#include "trap.h"

extern "C" {

wasm_rt_shared_memory_t* w2c_env_memory(w2c_env* env) { return &env->memory; }

u32 w2c_env_fetch(w2c_env* env, u32 region, u32 offset, u32 to, u32 bytes) {
  return env->regions->Fetch(region, offset, to, bytes);
}

u32 w2c_env_place(w2c_env* env, u32 region, u32 offset, u32 from, u32 bytes) {
  return env->regions->Place(region, offset, from, bytes);
}

u32 w2c_env_atomic(w2c_env* env, u32 region, u32 offset, u32 operation, u32 operands) {
  return env->regions->Atomic(region, offset, operation, operands);
}

}  // extern "C"

CardInstance::CardInstance(uint8_t* memory, uint64_t bytes, RegionAccess& regions)
    : imports_{{memory, bytes}, &regions} {
  wasm2c_card_instantiate(&card_, &imports_);
}

const char* CardInstance::Try(void (*run)(void* context), void* context) {
  const int reason = CatchTrap(run, context);
  return reason == 0 ? nullptr : TrapText(reason);
}
