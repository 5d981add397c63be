#include "icrc.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

// The CRC is reflected: the first byte has the highest powers, and the lowest bit of a byte has its highest power. So
// everything here is reflected too: bit i of a vector of n bits is the coefficient of x^(n-1-i). The carry-less product
// of two reflected words of 64 bits is reflected as well, but has 127 bits: in a vector of 128 bits it is x times the
// product. The constants are therefore one power less.
namespace {

constexpr uint32_t kPolynomial = 0xedb88320;

/// x^n modulo the polynomial, n >= 0, as a word of 64 bits.
constexpr int64_t Power(uint32_t n) {
  uint32_t power = 0x80000000;
  for (; n != 0; n--) power = power & 1 ? (power >> 1) ^ kPolynomial : power >> 1;
  return static_cast<int64_t>(uint64_t{power} << 32);
}

/// The quotient of x^64 divided by the polynomial, in 33 bits.
constexpr int64_t Quotient() {
  // long division: bit 0 is the highest power of the remainder, and the dividend is a one followed by zeroes
  uint64_t quotient = 1;
  uint32_t rest = kPolynomial;
  for (int bit = 1; bit <= 32; bit++) {
    const uint32_t carry = rest & 1;
    rest >>= 1;
    if (carry) {
      quotient |= uint64_t{1} << bit;
      rest ^= kPolynomial;
    }
  }
  return static_cast<int64_t>(quotient);
}

/// The factors that move the two halves of 128 bits forward by `bits`: the first half is 64 bits further away.
constexpr int64_t FirstHalf(uint32_t bits) { return Power(bits + 63); }
constexpr int64_t SecondHalf(uint32_t bits) { return Power(bits - 1); }

#define NARROW __attribute__((target("pclmul,sse4.1")))
#define WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

NARROW inline __m128i Carry(__m128i x, __m128i by, __m128i onto) {
  return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11)), onto);
}

/// Reduces 128 bits, followed by 32 zeroes, modulo the polynomial.
NARROW inline uint32_t Reduce(__m128i x) {
  constexpr int64_t kTo96 = Power(95), kTo64 = Power(63);
  // reduce the first half to 96 bits, and add it to the second half with its zeroes
  x = _mm_xor_si128(_mm_clmulepi64_si128(x, _mm_set1_epi64x(kTo96), 0x00), _mm_slli_si128(_mm_srli_si128(x, 8), 4));
  // then reduce the first 32 of those 96 bits, and add them to the other 64
  x = _mm_xor_si128(_mm_clmulepi64_si128(x, _mm_set1_epi64x(kTo64), 0x00), x);
  // and the last 64 modulo the polynomial, by its inverse (Barrett)
  const __m128i rest = _mm_srli_si128(x, 8);
  constexpr int64_t kInverse = Quotient(), kModulus = int64_t{kPolynomial} << 1 | 1;
  const __m128i lower = _mm_set_epi32(0, 0, 0, -1);
  __m128i times = _mm_clmulepi64_si128(_mm_and_si128(rest, lower), _mm_set1_epi64x(kInverse), 0x00);
  times = _mm_clmulepi64_si128(_mm_and_si128(times, lower), _mm_set1_epi64x(kModulus), 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(times, rest), 1));
}

NARROW uint32_t CrcNarrow(uint32_t start, const uint8_t* at, uint32_t bytes) {
  const __m128i far = _mm_set_epi64x(SecondHalf(512), FirstHalf(512));
  const __m128i near = _mm_set_epi64x(SecondHalf(128), FirstHalf(128));
  auto from = reinterpret_cast<const __m128i*>(at);
  const auto end = reinterpret_cast<const __m128i*>(at + bytes);
  __m128i a = _mm_xor_si128(_mm_loadu_si128(from), _mm_cvtsi32_si128(static_cast<int>(start)));
  __m128i b = _mm_loadu_si128(from + 1), c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
  for (from += 4; from != end; from += 4) {
    a = Carry(a, far, _mm_loadu_si128(from));
    b = Carry(b, far, _mm_loadu_si128(from + 1));
    c = Carry(c, far, _mm_loadu_si128(from + 2));
    d = Carry(d, far, _mm_loadu_si128(from + 3));
  }
  return Reduce(Carry(Carry(Carry(a, near, b), near, c), near, d));
}

WIDE inline __m512i Carry(__m512i x, __m512i by, __m512i onto) {
  const __m512i first = _mm512_clmulepi64_epi128(x, by, 0x00), second = _mm512_clmulepi64_epi128(x, by, 0x11);
  return _mm512_ternarylogic_epi64(first, second, onto, 0x96);
}

WIDE uint32_t CrcWide(uint32_t start, const uint8_t* at, uint32_t bytes) {
  constexpr int64_t kFar[] = {FirstHalf(2048), SecondHalf(2048)}, kNear[] = {FirstHalf(512), SecondHalf(512)};
  const __m512i far = _mm512_set4_epi64(kFar[1], kFar[0], kFar[1], kFar[0]);
  const __m512i near = _mm512_set4_epi64(kNear[1], kNear[0], kNear[1], kNear[0]);
  const __m128i nearest = _mm_set_epi64x(SecondHalf(128), FirstHalf(128));
  const uint8_t* end = at + bytes;
  const __m512i register512 = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(start)));
  __m512i a = _mm512_xor_si512(_mm512_loadu_si512(at), register512);
  __m512i b = _mm512_loadu_si512(at + 64), c = _mm512_loadu_si512(at + 128), d = _mm512_loadu_si512(at + 192);
  for (at += 256; at != end; at += 256) {
    a = Carry(a, far, _mm512_loadu_si512(at));
    b = Carry(b, far, _mm512_loadu_si512(at + 64));
    c = Carry(c, far, _mm512_loadu_si512(at + 128));
    d = Carry(d, far, _mm512_loadu_si512(at + 192));
  }
  const __m512i all = Carry(Carry(Carry(a, near, b), near, c), near, d);
  __m128i x = _mm512_castsi512_si128(all);
  x = Carry(x, nearest, _mm512_maskz_extracti32x4_epi32(0xf, all, 1));
  x = Carry(x, nearest, _mm512_maskz_extracti32x4_epi32(0xf, all, 2));
  x = Carry(x, nearest, _mm512_maskz_extracti32x4_epi32(0xf, all, 3));
  return Reduce(x);
}

/// Returns whether the processor is QEMU's emulation (TCG), which has these instructions, but loops over bits in each.
bool IsEmulated() {
  uint32_t most, name[3];
  __cpuid(0x40000000, most, name[0], name[1], name[2]);
  return memcmp(name, "TCGTCGTCGTCG", sizeof name) == 0;
}

std::vector<CrcMethod> Known() {
  std::vector<CrcMethod> known;
  __builtin_cpu_init();
  if (IsEmulated() || !__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1")) return known;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
    known.push_back({"vpclmulqdq", CrcWide});
  known.push_back({"pclmulqdq", CrcNarrow});
  return known;
}

}  // namespace

#else

namespace {

std::vector<CrcMethod> Known() { return {}; }

}  // namespace

#endif

const std::vector<CrcMethod>& CrcMethods() {
  static const std::vector<CrcMethod> methods = Known();
  return methods;
}

namespace {

constexpr uint32_t kSmallestShare = 256, kLargestShare = 4096;
const Crc kBest = CrcMethods().empty() ? nullptr : CrcMethods()[0].crc;

}  // namespace

void CompleteIcrc(uint8_t* frame, uint32_t frameBytes, uint32_t share) {
  const bool isShare = share % kSmallestShare == 0 && share <= kLargestShare;
  if (kBest == nullptr || !isShare || frameBytes < share + kIcrcBytes) return;
  uint8_t* end = frame + frameBytes - kIcrcBytes;
  uint32_t icrc;
  memcpy(&icrc, end, sizeof icrc);
  icrc = ~kBest(icrc, end - share, share);
  memcpy(end, &icrc, sizeof icrc);
}

void FoldIcrc(uint8_t* payload, uint32_t payloadBytes) {
  if (payloadBytes < kBthBytes + kIcrcBytes + kSmallestShare) return;
  uint32_t share = kLargestShare;
  while (share > payloadBytes - kBthBytes - kIcrcBytes) share >>= 1;
  uint8_t* end = payload + payloadBytes - kIcrcBytes;
  uint32_t icrc;
  memcpy(&icrc, end, sizeof icrc);
  icrc ^= kBest(0, end - share, share);
  memcpy(end, &icrc, sizeof icrc);
}
