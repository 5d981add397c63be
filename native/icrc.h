// A link's part in the invariant CRC, by carry-less multiplication: what takes the card most of its time for a large packet takes
// a processor that can do this almost none. The card leaves to a link the last bytes of a packet, a power of two of them
// (linkShare of assembly/wire/icrc.ts), and knows all else: headers, masks, identifications.
#pragma once
#include <cstdint>
#include <vector>

/// CRC-32 register (0xEDB88320 reflected, without complements) after so many bytes, a multiple of 256.
using Crc = uint32_t (*)(uint32_t start, const uint8_t* at, uint32_t bytes);

struct CrcMethod {
  const char* name;
  Crc crc;
};

/// Those that this processor knows, the best one first. Where there is none, nothing else may be called.
const std::vector<CrcMethod>& CrcMethods();

/// Bytes of BTH and ICRC in front of and behind what is shared.
constexpr uint32_t kBthBytes = 12, kIcrcBytes = 4;

/// Completes the ICRC of a frame whose last four bytes are the register in front of the last `share` bytes before them.
void CompleteIcrc(uint8_t* frame, uint32_t frameBytes, uint32_t share);

/// XORs the ICRC at the end of a UDP payload with the CRC of the share in front of it, if it is long enough to have one.
void FoldIcrc(uint8_t* payload, uint32_t payloadBytes);
