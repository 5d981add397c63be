#include "core/udpsockets.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <algorithm>
#include <cerrno>

#include "card.h"
#include "core/fd.h"

namespace {

constexpr uint16_t kPort = 4791;
const sockaddr_in kHere = Address4("127.0.0.1", kPort), kThere = Address4("127.0.0.2", kPort);
constexpr int kBuffer = 1 << 20;

/// A card on an address of the loopback interface.
struct End {
  explicit End(const sockaddr_in& address, uint32_t slotBytes = 2048) : card(64, slotBytes) {
    REQUIRE(sockets.Add(Address(address), kBuffer, 1) == 0);
    sockets.Attach(card.memory.data(), card.memory.size(), card.layout);
  }

  /// Receives until `count` descriptors have arrived, for a second at most.
  uint32_t Receive(uint32_t count) {
    uint32_t received = 0;
    for (int turn = 0; received < count && turn < 100; turn++) {
      pollfd readable{sockets.Fds()[0], POLLIN, 0};
      poll(&readable, 1, 10);
      received += sockets.Receive();
    }
    return received;
  }

  Card card;
  UdpSockets sockets;
};

}  // namespace

TEST_CASE("frames arrive with the payload and the addresses with which they were sent") {
  End here(kHere), there(kThere);
  for (uint32_t i = 1; i <= 10; i++) here.card.Send(Frame(kHere, kThere, Payload(i * 100, i)));
  CHECK(here.sockets.Send() == 10);
  REQUIRE(there.Receive(10) == 10);
  for (uint32_t i = 1; i <= 10; i++) {
    CHECK((there.card.frames.rx[there.card.frames.rx.Consumer()].options & kRxIpIdUnknown) != 0);
    auto frame = there.card.Receive();
    Datagram datagram;
    REQUIRE(ParseUdp(frame.data(), static_cast<uint32_t>(frame.size()), datagram));
    CHECK(memcmp(datagram.source, &kHere.sin_addr, 4) == 0);
    CHECK(memcmp(datagram.destination, &kThere.sin_addr, 4) == 0);
    CHECK(datagram.sourcePort == kPort);
    CHECK(PayloadOf(frame) == Payload(i * 100, i));
  }
  CHECK(here.sockets.Counters().txFrames == 10);
  CHECK(there.sockets.Counters().rxFrames == 10);
}

TEST_CASE("a burst leaves as one super-packet, and arrives as one where slots are large enough") {
  End here(kHere), there(kThere, kCoalescedBytes);
  REQUIRE(here.sockets.SupportsGso());
  for (uint32_t i = 0; i < 20; i++)
    here.card.Send(Frame(kHere, kThere, Payload(i == 19 ? 10 : 1000, i)), i == 0 ? 0 : kTxContinuesBurst);
  CHECK(here.sockets.Send() == 20);
  REQUIRE(there.Receive(1) == 1);
  CHECK((there.card.frames.rx[0].options >> kRxSegmentShift) == 1000);
  CHECK(PayloadOf(there.card.Receive()).size() == 19 * 1000 + 10);
  CHECK(here.sockets.Counters().txBursts == 1);
  CHECK(there.sockets.Counters().rxFrames == 20);
  CHECK(there.sockets.Counters().rxSupers == 1);
}

TEST_CASE("frames that are no datagrams, or of no address, are counted and hold up nothing") {
  End here(kHere), there(kThere);
  here.card.Send(Payload(60));
  here.card.Send(Frame(Address4("127.0.0.9", kPort), kThere, Payload(50)));
  here.card.Send({});
  here.card.Send(Frame(kHere, kThere, Payload(50)));
  // outside of the memory
  here.card.frames.tx[0].addr = UINT64_MAX;
  CHECK(here.sockets.Send() == 4);
  REQUIRE(there.Receive(1) == 1);
  CHECK(PayloadOf(there.card.Receive()) == Payload(50));
  CHECK(here.sockets.Counters().txInvalid == 2);
}

TEST_CASE("a datagram that is longer than a slot is counted, and the slots stay all different") {
  End here(kHere, 4096), there(kThere, 512);
  for (const size_t bytes : {1000, 100, 1000, 200}) here.card.Send(Frame(kHere, kThere, Payload(bytes)));
  CHECK(here.sockets.Send() == 4);
  REQUIRE(there.Receive(2) == 2);
  CHECK(PayloadOf(there.card.Receive()).size() == 100);
  CHECK(PayloadOf(there.card.Receive()).size() == 200);
  CHECK(there.sockets.Counters().rxTruncated == 2);
  std::vector<uint64_t> slots;
  for (uint32_t i = 0; i < 64; i++) slots.push_back(there.card.frames.rx[i].addr);
  std::sort(slots.begin(), slots.end());
  CHECK(std::adjacent_find(slots.begin(), slots.end()) == slots.end());
}

TEST_CASE("an address that is taken is -EADDRINUSE, and the socket is closed") {
  End here(kHere);
  UdpSockets second;
  CHECK(second.Add(Address(kHere), kBuffer, 1) == -EADDRINUSE);
  CHECK(second.Fds().empty());
  CHECK(second.FdOf(reinterpret_cast<const uint8_t*>(&kHere.sin_addr), 4) == -1);
}

TEST_CASE("a socket that only sends has a port of its own, and receives nothing") {
  End here(kHere), there(kThere);
  const int port = here.sockets.AddSender(Address(Address4("127.0.0.1", 0)), kBuffer, true);
  REQUIRE(port > 0);
  const sockaddr_in other = Address4("127.0.0.1", static_cast<uint16_t>(port));
  here.card.Send(Frame(other, kThere, Payload(40)));
  there.card.Send(Frame(kThere, other, Payload(40)));
  CHECK(here.sockets.Send() == 1);
  CHECK(there.sockets.Send() == 1);
  REQUIRE(there.Receive(1) == 1);
  CHECK(PayloadOf(there.card.Receive()) == Payload(40));
  CHECK(here.Receive(1) == 0);
}
