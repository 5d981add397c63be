// The CRC methods of x86-64: carry-less multiplication in vectors of 128, 256 (AVX2) and 512 bits (AVX-512).
#include "crc.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <cstring>

#include "crcpowers.h"

namespace {

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

#define BY128 __attribute__((target("pclmul,sse4.1")))
#define BY256 __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.1")))
#define BY512 __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

/// Reads a vector at `i`, and writes it there again if the CRC copies.
template <bool kCopies>
BY128 inline __m128i Read128(const uint8_t* from, uint8_t* to, uint32_t i) {
  const __m128i vector = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
  if (kCopies) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), vector);
  return vector;
}

template <bool kCopies>
BY256 inline __m256i Read256(const uint8_t* from, uint8_t* to, uint32_t i) {
  const __m256i vector = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
  if (kCopies) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), vector);
  return vector;
}

template <bool kCopies>
BY512 inline __m512i Read512(const uint8_t* from, uint8_t* to, uint32_t i) {
  const __m512i vector = _mm512_loadu_si512(from + i);
  if (kCopies) _mm512_storeu_si512(to + i, vector);
  return vector;
}

BY128 inline __m128i Carry(__m128i x, __m128i by, __m128i onto) {
  return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11)), onto);
}

/// Reduces 128 bits, followed by 32 zeroes, modulo the polynomial.
BY128 inline uint32_t Reduce(__m128i x) {
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

template <bool kCopies>
BY128 uint32_t Crc128(uint32_t start, const uint8_t* from, uint32_t bytes, uint8_t* to) {
  const auto at = [=](uint32_t i) BY128 { return Read128<kCopies>(from, to, i); };
  const __m128i far = _mm_set_epi64x(SecondHalf(512), FirstHalf(512));
  const __m128i near = _mm_set_epi64x(SecondHalf(128), FirstHalf(128));
  __m128i a = _mm_xor_si128(at(0), _mm_cvtsi32_si128(static_cast<int>(start)));
  __m128i b = at(16), c = at(32), d = at(48);
  for (uint32_t i = 64; i != bytes; i += 64) {
    a = Carry(a, far, at(i));
    b = Carry(b, far, at(i + 16));
    c = Carry(c, far, at(i + 32));
    d = Carry(d, far, at(i + 48));
  }
  return Reduce(Carry(Carry(Carry(a, near, b), near, c), near, d));
}

BY256 inline __m256i Carry(__m256i x, __m256i by, __m256i onto) {
  const __m256i first = _mm256_clmulepi64_epi128(x, by, 0x00), second = _mm256_clmulepi64_epi128(x, by, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(first, second), onto);
}

template <bool kCopies>
BY256 uint32_t Crc256(uint32_t start, const uint8_t* from, uint32_t bytes, uint8_t* to) {
  const auto at = [=](uint32_t i) BY256 { return Read256<kCopies>(from, to, i); };
  const __m256i far = _mm256_broadcastsi128_si256(_mm_set_epi64x(SecondHalf(1024), FirstHalf(1024)));
  const __m256i near = _mm256_broadcastsi128_si256(_mm_set_epi64x(SecondHalf(256), FirstHalf(256)));
  const __m128i nearest = _mm_set_epi64x(SecondHalf(128), FirstHalf(128));
  const __m256i register256 = _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(start)));
  __m256i a = _mm256_xor_si256(at(0), register256);
  __m256i b = at(32), c = at(64), d = at(96);
  for (uint32_t i = 128; i != bytes; i += 128) {
    a = Carry(a, far, at(i));
    b = Carry(b, far, at(i + 32));
    c = Carry(c, far, at(i + 64));
    d = Carry(d, far, at(i + 96));
  }
  const __m256i all = Carry(Carry(Carry(a, near, b), near, c), near, d);
  return Reduce(Carry(_mm256_castsi256_si128(all), nearest, _mm256_extracti128_si256(all, 1)));
}

BY512 inline __m512i Carry(__m512i x, __m512i by, __m512i onto) {
  const __m512i first = _mm512_clmulepi64_epi128(x, by, 0x00), second = _mm512_clmulepi64_epi128(x, by, 0x11);
  return _mm512_ternarylogic_epi64(first, second, onto, 0x96);
}

template <bool kCopies>
BY512 uint32_t Crc512(uint32_t start, const uint8_t* from, uint32_t bytes, uint8_t* to) {
  const auto at = [=](uint32_t i) BY512 { return Read512<kCopies>(from, to, i); };
  constexpr int64_t kFar[] = {FirstHalf(2048), SecondHalf(2048)}, kNear[] = {FirstHalf(512), SecondHalf(512)};
  const __m512i far = _mm512_set4_epi64(kFar[1], kFar[0], kFar[1], kFar[0]);
  const __m512i near = _mm512_set4_epi64(kNear[1], kNear[0], kNear[1], kNear[0]);
  const __m128i nearest = _mm_set_epi64x(SecondHalf(128), FirstHalf(128));
  const __m512i register512 = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(start)));
  __m512i a = _mm512_xor_si512(at(0), register512);
  __m512i b = at(64), c = at(128), d = at(192);
  for (uint32_t i = 256; i != bytes; i += 256) {
    a = Carry(a, far, at(i));
    b = Carry(b, far, at(i + 64));
    c = Carry(c, far, at(i + 128));
    d = Carry(d, far, at(i + 192));
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

}  // namespace

std::vector<CrcMethod> MethodsOfProcessor() {
  std::vector<CrcMethod> known;
  __builtin_cpu_init();
  if (IsEmulated() || !__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1")) return known;
  if (__builtin_cpu_supports("vpclmulqdq")) {
    if (__builtin_cpu_supports("avx512f")) known.push_back({"vpclmulqdq, 512 bits", Crc512<false>, Crc512<true>});
    if (__builtin_cpu_supports("avx2")) known.push_back({"vpclmulqdq, 256 bits", Crc256<false>, Crc256<true>});
  }
  known.push_back({"pclmulqdq", Crc128<false>, Crc128<true>});
  return known;
}

#endif
