// The CRC methods of arm64: PMULL, which folds, with the CRC32 instructions, which reduce; and those alone, for the
// processors that have no cryptography extension (Cortex-A72 of a Raspberry Pi 4).
#include "crc.h"

#if defined(__aarch64__)
#include <arm_acle.h>
#include <arm_neon.h>
#include <sys/auxv.h>
#include <cstring>

#include "crcpowers.h"

namespace {

/// Of AT_HWCAP (Linux, Documentation/arch/arm64/elf_hwcaps.rst); an old libc lacks the names.
constexpr unsigned long kHasPmull = 1 << 4, kHasCrc32 = 1 << 7;

#define CRC32 __attribute__((target("+crc")))
#define PMULL __attribute__((target("+crypto+crc")))

/// Reads a vector at `i`, and writes it there again if the CRC copies.
template <bool kCopies>
PMULL inline uint64x2_t Read(const uint8_t* from, uint8_t* to, uint32_t i) {
  const uint8x16_t vector = vld1q_u8(from + i);
  if (kCopies) vst1q_u8(to + i, vector);
  return vreinterpretq_u64_u8(vector);
}

PMULL inline uint64x2_t Carry(uint64x2_t x, poly64x2_t by, uint64x2_t onto) {
  const poly64x2_t of = vreinterpretq_p64_u64(x);
  const poly128_t first = vmull_p64(vgetq_lane_p64(of, 0), vgetq_lane_p64(by, 0)), second = vmull_high_p64(of, by);
  return veorq_u64(veorq_u64(vreinterpretq_u64_p128(first), vreinterpretq_u64_p128(second)), onto);
}

PMULL inline poly64x2_t Factors(int64_t first, int64_t second) {
  return vreinterpretq_p64_s64(vcombine_s64(vcreate_s64(first), vcreate_s64(second)));
}

template <bool kCopies>
PMULL uint32_t CrcByPmull(uint32_t start, const uint8_t* from, uint32_t bytes, uint8_t* to) {
  const auto at = [=](uint32_t i) PMULL { return Read<kCopies>(from, to, i); };
  const poly64x2_t far = Factors(FirstHalf(512), SecondHalf(512)), near = Factors(FirstHalf(128), SecondHalf(128));
  uint64x2_t a = veorq_u64(at(0), vcombine_u64(vcreate_u64(start), vcreate_u64(0)));
  uint64x2_t b = at(16), c = at(32), d = at(48);
  for (uint32_t i = 64; i != bytes; i += 64) {
    a = Carry(a, far, at(i));
    b = Carry(b, far, at(i + 16));
    c = Carry(c, far, at(i + 32));
    d = Carry(d, far, at(i + 48));
  }
  const uint64x2_t all = Carry(Carry(Carry(a, near, b), near, c), near, d);
  return __crc32d(__crc32d(0, vgetq_lane_u64(all, 0)), vgetq_lane_u64(all, 1));
}

template <bool kCopies>
CRC32 uint32_t CrcByInstruction(uint32_t start, const uint8_t* from, uint32_t bytes, uint8_t* to) {
  for (uint32_t i = 0; i != bytes; i += sizeof(uint64_t)) {
    uint64_t next;
    memcpy(&next, from + i, sizeof next);
    if (kCopies) memcpy(to + i, &next, sizeof next);
    start = __crc32d(start, next);
  }
  return start;
}

}  // namespace

std::vector<CrcMethod> MethodsOfProcessor() {
  std::vector<CrcMethod> known;
  const unsigned long has = getauxval(AT_HWCAP);
  if (!(has & kHasCrc32)) return known;
  if (has & kHasPmull) known.push_back({"pmull", CrcByPmull<false>, CrcByPmull<true>});
  known.push_back({"crc32", CrcByInstruction<false>, CrcByInstruction<true>});
  return known;
}

#endif
