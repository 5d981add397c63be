#include "headers.h"

#include <linux/if_ether.h>
#include <cstring>

namespace {

uint16_t Get16(const uint8_t* at) { return static_cast<uint16_t>(at[0] << 8 | at[1]); }

void Put16(uint8_t* at, uint32_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}

void PutUdp(uint8_t* udp, uint32_t bytes, uint16_t sourcePort, uint16_t destinationPort) {
  memcpy(udp, &sourcePort, 2);
  memcpy(udp + 2, &destinationPort, 2);
  Put16(udp + 4, bytes);
  Put16(udp + 6, 0);
}

/// The Internet checksum (RFC 1071) of an even number of bytes, not complemented.
uint32_t Sum(const uint8_t* at, uint32_t bytes, uint32_t sum = 0) {
  for (uint32_t i = 0; i < bytes; i += 2) sum += Get16(at + i);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

void SetIpChecksum(uint8_t* ip) {
  Put16(ip + 10, 0);
  Put16(ip + 10, ~Sum(ip, (ip[0] & 15u) * 4) & 0xffff);
}

}  // namespace

bool ParseUdp(uint8_t* frame, uint32_t length, Datagram& datagram) {
  uint32_t at = ETH_HLEN;
  if (length < at) return false;
  uint16_t type = Get16(frame + 12);
  if (type == ETH_P_8021Q) {
    at += 4;
    if (length < at) return false;
    type = Get16(frame + 16);
  }
  uint8_t* ip = frame + at;
  uint32_t room = length - at, header;
  if (type == ETH_P_IP && room >= 20) {
    header = (ip[0] & 15u) * 4;
    if (ip[0] >> 4 != 4 || header < 20 || ip[9] != IPPROTO_UDP || Get16(ip + 6) & 0x3fff) return false;
    datagram.isIpv6 = false;
    datagram.trafficClass = ip[1];
    datagram.hopLimit = ip[8];
    datagram.source = ip + 12;
    datagram.destination = ip + 16;
  } else if (type == ETH_P_IPV6 && room >= 40) {
    header = 40;
    if (ip[0] >> 4 != 6 || ip[6] != IPPROTO_UDP) return false;
    datagram.isIpv6 = true;
    datagram.trafficClass = static_cast<uint8_t>(ip[0] << 4 | ip[1] >> 4);
    datagram.hopLimit = ip[7];
    datagram.source = ip + 8;
    datagram.destination = ip + 24;
  } else {
    return false;
  }
  if (room < header + 8) return false;
  const uint8_t* udp = ip + header;
  const uint32_t udpBytes = Get16(udp + 4);
  if (udpBytes < 8 || udpBytes > room - header) return false;
  datagram.sourcePort = Get16(udp);
  datagram.destinationPort = Get16(udp + 2);
  datagram.payload = ip + header + 8;
  datagram.payloadBytes = udpBytes - 8;
  datagram.ipAt = at;
  datagram.headerBytes = at + header + 8;
  return true;
}

void SetPayloadBytes(uint8_t* headers, const Datagram& datagram, uint32_t payloadBytes) {
  uint8_t* ip = headers + datagram.ipAt;
  uint8_t* udp = headers + datagram.headerBytes - 8;
  Put16(udp + 4, 8 + payloadBytes);
  if (datagram.isIpv6) return Put16(ip + 4, 8 + payloadBytes);
  Put16(ip + 2, static_cast<uint32_t>(udp - ip) + 8 + payloadBytes);
  SetIpChecksum(ip);
}

void SetSegment(uint8_t* headers, const Datagram& datagram, uint32_t k, uint32_t payloadBytes) {
  uint8_t* ip = headers + datagram.ipAt;
  if (!datagram.isIpv6) Put16(ip + 4, Get16(ip + 4) + k);
  SetPayloadBytes(headers, datagram, payloadBytes);
  Put16(headers + datagram.headerBytes - 2, 0);
}

void SetPseudoHeaderSum(uint8_t* headers, const Datagram& datagram) {
  uint8_t* udp = headers + datagram.headerBytes - 8;
  const uint32_t addressBytes = datagram.isIpv6 ? 16 : 4;
  const uint32_t sum = Sum(datagram.source, addressBytes, IPPROTO_UDP + Get16(udp + 4));
  Put16(udp + 6, Sum(datagram.destination, addressBytes, sum));
}

void WriteHeaders4(uint8_t* frame, uint32_t payloadBytes, const sockaddr_in& source, const sockaddr_in& destination,
              uint8_t trafficClass, uint8_t hopLimit) {
  memset(frame, 0, kHeaderBytes4);
  Put16(frame + 12, ETH_P_IP);
  uint8_t* ip = frame + ETH_HLEN;
  ip[0] = 0x45;
  ip[1] = trafficClass;
  Put16(ip + 2, 28 + payloadBytes);
  Put16(ip + 6, 0x4000);
  ip[8] = hopLimit;
  ip[9] = IPPROTO_UDP;
  memcpy(ip + 12, &source.sin_addr, 4);
  memcpy(ip + 16, &destination.sin_addr, 4);
  SetIpChecksum(ip);
  PutUdp(ip + 20, 8 + payloadBytes, source.sin_port, destination.sin_port);
}

void WriteHeaders6(uint8_t* frame, uint32_t payloadBytes, const sockaddr_in6& source, const sockaddr_in6& destination,
              uint8_t trafficClass, uint8_t hopLimit) {
  memset(frame, 0, kHeaderBytes6);
  Put16(frame + 12, ETH_P_IPV6);
  uint8_t* ip = frame + ETH_HLEN;
  ip[0] = static_cast<uint8_t>(0x60 | trafficClass >> 4);
  ip[1] = static_cast<uint8_t>(trafficClass << 4);
  Put16(ip + 4, 8 + payloadBytes);
  ip[6] = IPPROTO_UDP;
  ip[7] = hopLimit;
  memcpy(ip + 8, &source.sin6_addr, 16);
  memcpy(ip + 24, &destination.sin6_addr, 16);
  PutUdp(ip + 40, 8 + payloadBytes, source.sin6_port, destination.sin6_port);
}
