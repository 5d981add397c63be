// Ethernet, IP and UDP headers of a frame: parsed for a UDP socket, which sends the payload only, and written for the
// card in front of a received payload.
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
  uint16_t sourcePort;
  uint16_t destinationPort;
  uint8_t* payload;
  uint32_t payloadBytes;
  uint32_t ipAt;         // of the IP header, from the start of the frame
  uint32_t headerBytes;  // of all headers
};

/// Parses a frame. @returns false if the frame is incomplete, not IP, a fragment, or not UDP
bool ParseUdp(uint8_t* frame, uint32_t length, Datagram& datagram);

/// Most bytes of headers that ParseUdp accepts: Ethernet with a tag, IPv4 with all options, UDP.
constexpr uint32_t kMaxHeaderBytes = 14 + 4 + 60 + 8;

/// Sets the lengths and the IPv4 checksum in a copy of a datagram's headers for another payload.
void SetPayloadBytes(uint8_t* headers, const Datagram& datagram, uint32_t payloadBytes);
/// The same for segment `k` of a super-packet, whose identification is the first one's plus `k`. The UDP checksum
/// becomes 0.
void SetSegment(uint8_t* headers, const Datagram& datagram, uint32_t k, uint32_t payloadBytes);
/// Sets the UDP checksum to the sum of the pseudo-header, so that the kernel or the interface computes the rest.
void SetPseudoHeaderSum(uint8_t* headers, const Datagram& datagram);

/// Bytes of the headers that WriteHeaders4 and WriteHeaders6 write.
constexpr uint32_t kHeaderBytes4 = 14 + 20 + 8;
constexpr uint32_t kHeaderBytes6 = 14 + 40 + 8;

/// Writes the headers of a received payload. Fields that the socket did not see are 0: MAC addresses, identification,
/// UDP checksum. "Don't fragment" is set, as every RoCE sender sets it.
void WriteHeaders4(uint8_t* frame, uint32_t payloadBytes, const sockaddr_in& source, const sockaddr_in& destination,
              uint8_t trafficClass, uint8_t hopLimit);
void WriteHeaders6(uint8_t* frame, uint32_t payloadBytes, const sockaddr_in6& source, const sockaddr_in6& destination,
              uint8_t trafficClass, uint8_t hopLimit);
