// The operations of WebAssembly that the card uses, for the C that wasm2c makes of it (scripts/setup/cardc.mjs). It
// replaces wasm2c's own runtime, which needs a vector library and knows much that the card does not use. For GCC and
// clang on little-endian processors.
//
// Each access checks its bounds. V8 reserves the addresses behind a shared memory, so that a wrong one faults, but not
// always (--disable-wasm-trap-handler), and a fault would end the process; a trap of the card becomes DEVICE_FATAL.
//
// The names of types, functions and macros are those that wasm2c writes. A function of the card reads the base and the
// size of the memory once, into M and S.
#pragma once
#include <math.h>
#include <string.h>

#include "types.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the card is for little-endian processors: its memory is little-endian"
#endif

#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TRAP(reason) (CardTrapped(TRAP_##reason), 0)
#define UNREACHABLE TRAP(UNREACHABLE)
#define INLINE static inline __attribute__((always_inline))

#define FUNC_PROLOGUE                               \
  u8* const M = instance->w2c_env_memory->data;     \
  const u64 S = instance->w2c_env_memory->size;     \
  (void)M;                                          \
  (void)S
#define FUNC_EPILOGUE
/// The memory, as argument and as parameters.
#define MEM M, S
#define MEMORY u8 *M, u64 S

// Addresses have 33 bits: 32 of the operand, and the offset of the instruction.
#define CHECK(bytes) \
  if (UNLIKELY(a + (bytes) > S)) TRAP(OOB)
#define CHECK_ALIGNED(type) \
  if (UNLIKELY(a % sizeof(type) != 0)) TRAP(UNALIGNED)

// Other threads write the memory meanwhile, so each access is atomic, and the compiler reads once what the card reads
// once. That costs nothing on these processors.
#define LOAD(name, type, extended, result)                                       \
  INLINE result name(MEMORY, u64 a) {                                            \
    CHECK(sizeof(type));                                                         \
    return (result)(extended)__atomic_load_n((type*)(M + a), __ATOMIC_RELAXED);  \
  }
#define STORE(name, type, value)                                     \
  INLINE void name(MEMORY, u64 a, value v) {                         \
    CHECK(sizeof(type));                                             \
    __atomic_store_n((type*)(M + a), (type)v, __ATOMIC_RELAXED);     \
  }
LOAD(i32_load, u32, u32, u32)
LOAD(i64_load, u64, u64, u64)
LOAD(i32_load8_u, u8, u32, u32)
LOAD(i32_load16_u, u16, u32, u32)
LOAD(i64_load8_u, u8, u64, u64)
LOAD(i64_load16_u, u16, u64, u64)
LOAD(i64_load32_u, u32, u64, u64)
LOAD(i64_load32_s, s32, s64, u64)
STORE(i32_store, u32, u32)
STORE(i64_store, u64, u64)
STORE(i32_store8, u8, u32)
STORE(i32_store16, u16, u32)
STORE(i64_store32, u32, u64)

INLINE f64 f64_load(MEMORY, u64 a) {
  const u64 bits = i64_load(MEM, a);
  f64 value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
INLINE void f64_store(MEMORY, u64 a, f64 value) {
  u64 bits;
  memcpy(&bits, &value, sizeof bits);
  i64_store(MEM, a, bits);
}

// Atomic operations are sequentially consistent: doorbells and the arming of completion queues need it.
#define ATOMIC(prefix, type)                                                                          \
  INLINE type prefix##_atomic_load(MEMORY, u64 a) {                                                   \
    CHECK(sizeof(type));                                                                              \
    CHECK_ALIGNED(type);                                                                              \
    return __atomic_load_n((type*)(M + a), __ATOMIC_SEQ_CST);                                         \
  }                                                                                                   \
  INLINE void prefix##_atomic_store(MEMORY, u64 a, type v) {                                          \
    CHECK(sizeof(type));                                                                              \
    CHECK_ALIGNED(type);                                                                              \
    __atomic_store_n((type*)(M + a), v, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                   \
  INLINE type prefix##_atomic_rmw_cmpxchg(MEMORY, u64 a, type expected, type v) {                     \
    CHECK(sizeof(type));                                                                              \
    CHECK_ALIGNED(type);                                                                              \
    __atomic_compare_exchange_n((type*)(M + a), &expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    return expected;                                                                                  \
  }
#define ATOMIC_RMW(prefix, type, operation, builtin)                \
  INLINE type prefix##_atomic_rmw_##operation(MEMORY, u64 a, type v) { \
    CHECK(sizeof(type));                                            \
    CHECK_ALIGNED(type);                                            \
    return builtin((type*)(M + a), v, __ATOMIC_SEQ_CST);            \
  }
ATOMIC(i32, u32)
ATOMIC(i64, u64)
ATOMIC_RMW(i32, u32, add, __atomic_fetch_add)
ATOMIC_RMW(i64, u64, add, __atomic_fetch_add)
ATOMIC_RMW(i32, u32, sub, __atomic_fetch_sub)
ATOMIC_RMW(i64, u64, sub, __atomic_fetch_sub)
ATOMIC_RMW(i32, u32, xchg, __atomic_exchange_n)
ATOMIC_RMW(i64, u64, xchg, __atomic_exchange_n)

// Vectors: the card's CRC, and copies of headers.
typedef u8 v128 __attribute__((vector_size(16)));
typedef u32 u32x4 __attribute__((vector_size(16)));
typedef u64 u64x2 __attribute__((vector_size(16)));
INLINE v128 v128_load(MEMORY, u64 a) {
  CHECK(16);
  v128 value;
  memcpy(&value, M + a, sizeof value);
  return value;
}
INLINE void v128_store(MEMORY, u64 a, v128 value) {
  CHECK(16);
  memcpy(M + a, &value, sizeof value);
}
INLINE v128 v128_i32x4_replace_lane(v128 vector, u32 lane, u32 value) {
  u32x4 words = (u32x4)vector;
  words[lane] = value;
  return (v128)words;
}
INLINE v128 simde_wasm_i64x2_make(u64 low, u64 high) { return (v128)(u64x2){low, high}; }
INLINE v128 simde_wasm_i32x4_splat(u32 value) { return (v128)(u32x4){value, value, value, value}; }
INLINE v128 simde_wasm_i32x4_eq(v128 x, v128 y) { return (v128)((u32x4)x == (u32x4)y); }
INLINE v128 simde_wasm_v128_xor(v128 x, v128 y) { return x ^ y; }
INLINE u32 simde_wasm_v128_any_true(v128 vector) {
  const u64x2 halves = (u64x2)vector;
  return (halves[0] | halves[1]) != 0;
}
#define v128_const(...) ((v128){__VA_ARGS__})

INLINE void memory_copy(wasm_rt_shared_memory_t* to, wasm_rt_shared_memory_t* from, u64 at, u64 source, u64 bytes) {
  if (UNLIKELY(at + bytes > to->size || source + bytes > from->size)) TRAP(OOB);
  memmove(to->data + at, from->data + source, bytes);
}
INLINE void memory_fill(wasm_rt_shared_memory_t* memory, u64 at, u32 value, u64 bytes) {
  if (UNLIKELY(at + bytes > memory->size)) TRAP(OOB);
  memset(memory->data + at, (int)value, bytes);
}

// Numbers. The results of zero, of shifts and of conversions are WebAssembly's.
#define I32_CLZ(x) ((x) ? (u32)__builtin_clz(x) : 32)
#define I64_CLZ(x) ((x) ? (u64)__builtin_clzll(x) : 64)
#define I32_CTZ(x) ((x) ? (u32)__builtin_ctz(x) : 32)
#define I64_CTZ(x) ((x) ? (u64)__builtin_ctzll(x) : 64)
#define I32_POPCNT(x) ((u32)__builtin_popcount(x))
#define DIV_U(x, y) (UNLIKELY((y) == 0) ? TRAP(DIV_BY_ZERO) : (x) / (y))
#define REM_U(x, y) (UNLIKELY((y) == 0) ? TRAP(DIV_BY_ZERO) : (x) % (y))
#define I32_ROTL(x, y) (((x) << ((y) & 31)) | ((x) >> ((32 - (y)) & 31)))
#define I32_ROTR(x, y) (((x) >> ((y) & 31)) | ((x) << ((32 - (y)) & 31)))
#define I64_ROTL(x, y) (((x) << ((y) & 63)) | ((x) >> ((64 - (y)) & 63)))
#define I64_ROTR(x, y) (((x) >> ((y) & 63)) | ((x) << ((64 - (y)) & 63)))
INLINE u32 I32_TRUNC_SAT_U_F64(f64 x) { return x > -1. ? x < 4294967296. ? (u32)x : UINT32_MAX : 0; }
INLINE u64 I64_TRUNC_SAT_U_F64(f64 x) { return x > -1. ? x < 18446744073709551616. ? (u64)x : UINT64_MAX : 0; }
/// NaN if one is NaN; and the zero with the sign that the operation prefers.
INLINE f64 FMIN(f64 x, f64 y) {
  if (UNLIKELY(x != x || y != y)) return x != x ? x : y;
  if (UNLIKELY(x == 0 && y == 0)) return signbit(x) ? x : y;
  return x < y ? x : y;
}
INLINE f64 FMAX(f64 x, f64 y) {
  if (UNLIKELY(x != x || y != y)) return x != x ? x : y;
  if (UNLIKELY(x == 0 && y == 0)) return signbit(x) ? y : x;
  return x > y ? x : y;
}
