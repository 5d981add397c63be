// CRC-32 by instructions that WebAssembly lacks. Each processor has a file of its own (crcx64.cc, crcarm64.cc).
#pragma once
#include <cstdint>
#include <vector>

/// A function that continues a CRC-32 register (0xEDB88320 reflected, not complemented) by a multiple of 256 bytes.
using Crc = uint32_t (*)(uint32_t start, const uint8_t* from, uint32_t bytes, uint8_t* to);

struct CrcMethod {
  const char* name;
  /// Ignores `to`.
  Crc alone;
  /// Copies the bytes to `to`. It reads each once, so the CRC is that of the copy even if another thread writes them.
  Crc copying;

  /// Continues a register, and copies the bytes unless `to` is null.
  uint32_t Continue(uint32_t start, const uint8_t* from, uint32_t bytes, uint8_t* to = nullptr) const {
    return (to == nullptr ? alone : copying)(start, from, bytes, to);
  }
};

/// The methods of this processor, the fastest first.
const std::vector<CrcMethod>& CrcMethods();

/// Detects the methods. The file of the processor defines it.
std::vector<CrcMethod> MethodsOfProcessor();
