// Ethernet, IP and UDP headers around a datagram: taken apart for a UDP socket, and put back for the card.
#pragma once
#include <netinet/in.h>
#include <cstdint>

/// A UDP datagram found in a frame.
struct Datagram {
  bool isIpv6;
  uint8_t trafficClass;  // type of service or traffic class, ECN bits included
  uint8_t hopLimit;
  const uint8_t* source;  // 4 or 16 bytes
  const uint8_t* destination;
  uint16_t destinationPort;
  uint8_t* payload;
  uint32_t payloadBytes;
  uint32_t ipAt;         // of the IP header, from the start of the frame
  uint32_t headerBytes;  // of all headers
};

/// @returns false when the frame is not whole, not IP, a fragment, or not UDP
bool TakeApart(uint8_t* frame, uint32_t length, Datagram& datagram);

/// Room for the headers that TakeApart understands: a tag, and IPv4 with all options.
constexpr uint32_t kMostHeaders = 14 + 4 + 60 + 8;

/// Changes a copy of a datagram's headers, which starts at `headers`, to stand before another payload.
void SetPayloadBytes(uint8_t* headers, const Datagram& datagram, uint32_t payloadBytes);
/// The same for one segment of a super-packet, `k` of them after the first. The UDP checksum is left out.
void SetSegment(uint8_t* headers, const Datagram& datagram, uint32_t k, uint32_t payloadBytes);
/// Writes the sum of the pseudo-header as the UDP checksum, which makes the rest the kernel's or the interface's work.
void SetPseudoSum(uint8_t* headers, const Datagram& datagram);

/// Room that the headers need before the payload.
constexpr uint32_t kHeaders4 = 14 + 20 + 8;
constexpr uint32_t kHeaders6 = 14 + 40 + 8;

/// Writes the headers before a received payload. What the socket did not see is zero: the MAC addresses, the
/// identification, the UDP checksum; "do not fragment" is set, as every RoCE sender does.
void PutBack4(uint8_t* frame, uint32_t payloadBytes, const sockaddr_in& source, const sockaddr_in& destination,
              uint8_t trafficClass, uint8_t hopLimit);
void PutBack6(uint8_t* frame, uint32_t payloadBytes, const sockaddr_in6& source, const sockaddr_in6& destination,
              uint8_t trafficClass, uint8_t hopLimit);
