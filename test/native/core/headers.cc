#include "core/headers.h"

#include <doctest/doctest.h>

#include "card.h"

namespace {

const sockaddr_in kFrom = Address4("10.0.0.1", 4791), kTo = Address4("10.0.0.2", 4791);
const sockaddr_in6 kFrom6 = Address6("fd00::1", 4791), kTo6 = Address6("fd00::2", 4791);

bool Parses(std::vector<uint8_t> frame) {
  Datagram datagram;
  return ParseUdp(frame.data(), static_cast<uint32_t>(frame.size()), datagram);
}

uint32_t ChecksumOf(const uint8_t* ip, uint32_t bytes) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < bytes; i += 2) sum += static_cast<uint32_t>(ip[i] << 8 | ip[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

/// Returns the frame with a 802.1Q tag.
std::vector<uint8_t> Tagged(std::vector<uint8_t> frame) {
  const uint8_t tag[4] = {0x81, 0x00, 0x00, 0x05};
  frame.insert(frame.begin() + 12, tag, tag + sizeof tag);
  return frame;
}

}  // namespace

TEST_CASE("a datagram that was written is parsed as it was written") {
  auto frame = Frame(kFrom, kTo, Payload(100));
  Datagram datagram;
  REQUIRE(ParseUdp(frame.data(), static_cast<uint32_t>(frame.size()), datagram));
  CHECK(!datagram.isIpv6);
  CHECK(datagram.sourcePort == 4791);
  CHECK(datagram.destinationPort == 4791);
  CHECK(memcmp(datagram.source, &kFrom.sin_addr, 4) == 0);
  CHECK(memcmp(datagram.destination, &kTo.sin_addr, 4) == 0);
  CHECK(datagram.hopLimit == 64);
  CHECK(datagram.headerBytes == kHeaderBytes4);
  CHECK(PayloadOf(frame) == Payload(100));
  CHECK(PayloadOf(Frame(kFrom6, kTo6, Payload(100))) == Payload(100));
}

TEST_CASE("a tag stands in front of the IP header") {
  CHECK(PayloadOf(Tagged(Frame(kFrom, kTo, Payload(33)))) == Payload(33));
  CHECK(PayloadOf(Tagged(Frame(kFrom6, kTo6, Payload(33)))) == Payload(33));
}

TEST_CASE("a frame that ends within its headers or its payload is no datagram") {
  for (const auto& whole : {Frame(kFrom, kTo, Payload(20)), Frame(kFrom6, kTo6, Payload(20)),
                            Tagged(Frame(kFrom, kTo, Payload(20)))})
    for (size_t bytes = 0; bytes < whole.size(); bytes++) {
      CAPTURE(bytes);
      // a buffer of that size: the address sanitizer sees what is read behind it
      CHECK(!Parses(std::vector<uint8_t>(whole.begin(), whole.begin() + static_cast<long>(bytes))));
    }
}

TEST_CASE("bytes behind a datagram are none of its payload") {
  auto frame = Frame(kFrom, kTo, Payload(10));
  frame.resize(frame.size() + 18, 0xff);
  CHECK(PayloadOf(frame) == Payload(10));
}

TEST_CASE("fragments, other protocols and other versions are no datagrams") {
  auto frame = Frame(kFrom, kTo, Payload(10));
  frame[14 + 6] = 0x20;  // more fragments
  CHECK(!Parses(frame));
  frame = Frame(kFrom, kTo, Payload(10));
  frame[14 + 7] = 1;  // an offset
  CHECK(!Parses(frame));
  frame = Frame(kFrom, kTo, Payload(10));
  frame[14 + 9] = 6;  // TCP
  CHECK(!Parses(frame));
  frame = Frame(kFrom6, kTo6, Payload(10));
  frame[14 + 6] = 0;  // hop-by-hop options
  CHECK(!Parses(frame));
  frame = Frame(kFrom, kTo, Payload(10));
  frame[13] = 6;  // ARP
  CHECK(!Parses(frame));
}

TEST_CASE("the headers of a segment have its lengths, its identification and a right checksum") {
  auto frame = Frame(kFrom, kTo, Payload(3000));
  frame[14 + 4] = 0x12, frame[14 + 5] = 0xff;
  Datagram datagram;
  REQUIRE(ParseUdp(frame.data(), static_cast<uint32_t>(frame.size()), datagram));
  std::vector<uint8_t> headers(frame.begin(), frame.begin() + kHeaderBytes4);
  SetSegment(headers.data(), datagram, 2, 1000);
  const uint8_t* ip = headers.data() + 14;
  CHECK((ip[2] << 8 | ip[3]) == 20 + 8 + 1000);
  CHECK((ip[4] << 8 | ip[5]) == 0x1301);
  CHECK(ChecksumOf(ip, 20) == 0xffff);
  CHECK((ip[24] << 8 | ip[25]) == 8 + 1000);
}
