// The link's part of the invariant CRC, by instructions that WebAssembly lacks (crc.h). The CRC of a large packet takes
// much of the card's time, and much less of these instructions. The card leaves the last bytes of a packet, a power of
// two of them, to the link (icrcSpan of assembly/wire/icrc.ts). It handles the rest itself: headers, masked fields,
// identifications.
#pragma once
#include <cstdint>

/// Bytes of the BTH before the ICRC span, and of the ICRC after it.
constexpr uint32_t kBthBytes = 12, kIcrcBytes = 4;

/// Returns where the ICRC span of a frame begins, or null if the frame cannot have such a span: a descriptor may
/// say anything.
uint8_t* SpanOf(uint8_t* frame, uint32_t frameBytes, uint32_t span);

/// Completes the ICRC behind a span. It holds the CRC register in front of the span. @param from address of the span's
/// bytes, which are copied if that is not `place`
void CompleteIcrc(uint8_t* place, uint32_t span, const uint8_t* from);

/// XORs the CRC of the ICRC span of a packet into the ICRC at its end. Does nothing if the packet is too short for a
/// span. There must be CRC methods.
void FoldIcrc(uint8_t* payload, uint32_t payloadBytes);
