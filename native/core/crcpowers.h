// Constants that move a CRC forward over many bytes by carry-less multiplication, for vectors of any processor.
//
// The CRC is reflected: the first byte has the highest powers, and the lowest bit of a byte has its highest power. So
// everything here is reflected too: bit i of a vector of n bits is the coefficient of x^(n-1-i). The carry-less product
// of two reflected words of 64 bits is reflected as well, but has 127 bits: in a vector of 128 bits it is x times the
// product. The constants are therefore one power less.
#pragma once
#include <cstdint>

constexpr uint32_t kPolynomial = 0xedb88320;

/// x^n modulo the polynomial, n >= 0, as a word of 64 bits.
constexpr int64_t Power(uint32_t n) {
  uint32_t power = 0x80000000;
  for (; n != 0; n--) power = power & 1 ? (power >> 1) ^ kPolynomial : power >> 1;
  return static_cast<int64_t>(uint64_t{power} << 32);
}

/// The factors that move the two halves of 128 bits forward by `bits`: the first half is 64 bits further away.
constexpr int64_t FirstHalf(uint32_t bits) { return Power(bits + 63); }
constexpr int64_t SecondHalf(uint32_t bits) { return Power(bits - 1); }
