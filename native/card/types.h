// The types of the C that wasm2c makes of the card: names are those that it writes.
#pragma once
#include <stdint.h>

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
typedef float f32;
typedef double f64;

/// The card's memory. It does not move.
typedef struct {
  u8* data;
  u64 size;
} wasm_rt_shared_memory_t;

/// Reasons for a trap, in the order of their texts in trap.cc.
enum CardTrap { TRAP_OOB = 1, TRAP_UNALIGNED, TRAP_UNREACHABLE, TRAP_DIV_BY_ZERO };

#ifdef __cplusplus
extern "C"
#endif
    /// Ends the call of the card's function: see trap.h.
    __attribute__((noreturn, cold)) void CardTrapped(enum CardTrap reason);
