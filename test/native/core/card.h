// The memory of a card with rings and slots, and frames to put there.
#pragma once
#include <arpa/inet.h>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/frames.h"
#include "core/headers.h"

/// A card's memory: both rings, and a slot for each of their descriptors.
class Card {
 public:
  explicit Card(uint32_t descriptors = 8, uint32_t slotBytes = 2048, bool foldsIcrc = false)
      : descriptors_(descriptors), slotBytes_(slotBytes) {
    const uint32_t ringBytes = 64 + descriptors * static_cast<uint32_t>(sizeof(Descriptor));
    const uint32_t rx = (ringBytes + 63) & ~63u, slots = 2 * rx;
    layout = {{0, 32, 64, descriptors - 1}, {rx, rx + 32, rx + 64, descriptors - 1}, slotBytes, foldsIcrc};
    memory.resize(slots + 2 * descriptors * slotBytes);
    frames.Attach(memory.data(), memory.size(), layout);
    for (uint32_t i = 0; i < descriptors; i++) {
      frames.tx[i].addr = slots + i * slotBytes;
      frames.rx[i].addr = slots + (descriptors + i) * slotBytes;
    }
  }

  /// Puts a frame on the transmit ring.
  void Send(const std::vector<uint8_t>& frame, uint32_t options = 0) {
    const uint32_t at = frames.tx.Producer();
    Descriptor& to = frames.tx[at];
    std::copy(frame.begin(), frame.end(), memory.begin() + static_cast<long>(to.addr));
    to.len = static_cast<uint32_t>(frame.size());
    to.options = options;
    frames.tx.SetProducer(at + 1);
  }

  /// Takes the oldest frame of the receive ring, which must exist.
  std::vector<uint8_t> Receive() {
    const uint32_t at = frames.rx.Consumer();
    const Descriptor& from = frames.rx[at];
    std::vector<uint8_t> frame(memory.data() + from.addr, memory.data() + from.addr + from.len);
    frames.rx.SetConsumer(at + 1);
    return frame;
  }

  std::vector<uint8_t> memory;
  FrameLayout layout;
  Frames frames;

 private:
  uint32_t descriptors_, slotBytes_;
};

/// Returns `bytes` that are all different from those of another seed.
inline std::vector<uint8_t> Payload(size_t bytes, uint32_t seed = 1) {
  std::vector<uint8_t> payload(bytes);
  for (uint8_t& byte : payload) byte = static_cast<uint8_t>((seed = seed * 1103515245 + 12345) >> 16);
  return payload;
}

inline sockaddr_in Address4(const char* ip, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, ip, &address.sin_addr);
  return address;
}

inline sockaddr_in6 Address6(const char* ip, uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  inet_pton(AF_INET6, ip, &address.sin6_addr);
  return address;
}

/// Returns an address as the sockets take it: a sockaddr_in in place of a sockaddr_in6.
inline sockaddr_in6 Address(const sockaddr_in& address4) {
  sockaddr_in6 address{};
  memcpy(&address, &address4, sizeof address4);
  return address;
}

/// Returns a whole frame with a UDP datagram.
inline std::vector<uint8_t> Frame(const sockaddr_in& from, const sockaddr_in& to, const std::vector<uint8_t>& payload) {
  std::vector<uint8_t> frame(kHeaderBytes4 + payload.size());
  WriteHeaders4(frame.data(), static_cast<uint32_t>(payload.size()), from, to, 0, 64);
  std::copy(payload.begin(), payload.end(), frame.begin() + kHeaderBytes4);
  return frame;
}

inline std::vector<uint8_t> Frame(const sockaddr_in6& from, const sockaddr_in6& to,
                                  const std::vector<uint8_t>& payload) {
  std::vector<uint8_t> frame(kHeaderBytes6 + payload.size());
  WriteHeaders6(frame.data(), static_cast<uint32_t>(payload.size()), from, to, 0, 64);
  std::copy(payload.begin(), payload.end(), frame.begin() + kHeaderBytes6);
  return frame;
}

/// Returns the UDP payload of a frame, which must have one.
inline std::vector<uint8_t> PayloadOf(std::vector<uint8_t> frame) {
  Datagram datagram;
  if (!ParseUdp(frame.data(), static_cast<uint32_t>(frame.size()), datagram)) return {};
  return {datagram.payload, datagram.payload + datagram.payloadBytes};
}
